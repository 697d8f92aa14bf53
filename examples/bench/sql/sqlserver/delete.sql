-- Bare draining: ends claimed messages by key, and deletes their states.
DELETE FROM {{.State}} WHERE Seq IN (SELECT CAST(value AS BIGINT) FROM OPENJSON(@p1));
