-- Takes an idempotency key for a request: user, route, key, hash, milliseconds to live. No row means that the key is known.
-- While another replica holds it uncommitted, this waits for a second: error 1222. A duplicate is caught with XACT_ABORT off,
-- so that the transaction goes on; NOT EXISTS with HOLDLOCK would lock the keys beside it, and let strangers wait.
SET XACT_ABORT OFF;
SET LOCK_TIMEOUT 1000;
BEGIN TRY
    INSERT INTO registration_key (user_id, route, request, hash, status, headers, body, expires_at)
    VALUES (@p1, @p2, @p3, @p4, 0, N'', 0x, DATEDIFF_BIG(MILLISECOND, '1970-01-01', SYSUTCDATETIME()) + @p5);
END TRY
BEGIN CATCH
    IF ERROR_NUMBER() NOT IN (2601, 2627)
    BEGIN
        SET LOCK_TIMEOUT -1;
        THROW;
    END;
END CATCH;
SET LOCK_TIMEOUT -1;
