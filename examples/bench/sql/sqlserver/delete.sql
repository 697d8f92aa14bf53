-- Bare draining: ends claimed messages by key, and deletes them.
DELETE FROM {{.Outbox}} WHERE Seq IN (SELECT CAST(value AS BIGINT) FROM OPENJSON(@p1));
