-- Bare draining: ends claimed messages by key, and deletes them.
SET XACT_ABORT ON;
BEGIN TRANSACTION;
DELETE FROM {{.State}} WHERE Seq IN (SELECT CAST(value AS BIGINT) FROM OPENJSON(@p1));
DELETE FROM {{.Outbox}} WHERE Seq IN (SELECT CAST(value AS BIGINT) FROM OPENJSON(@p1));
COMMIT TRANSACTION;
