-- Deletes some of the keys that have expired: limit.
-- In batches, so that no request waits for it for long. By the primary key, so that it locks a row before its entry in the index
-- by expiry, as key_renew does; what is locked may be in use again, and stays. Only what is deleted counts as affected.
SET XACT_ABORT ON;
SET NOCOUNT ON;
DECLARE @now BIGINT = DATEDIFF_BIG(MILLISECOND, '1970-01-01', SYSUTCDATETIME());
DECLARE @expired TABLE (
    user_id NVARCHAR(64) COLLATE Latin1_General_100_BIN2 NOT NULL,
    route   NVARCHAR(32) COLLATE Latin1_General_100_BIN2 NOT NULL,
    request NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    PRIMARY KEY (user_id, route, request)
);
INSERT INTO @expired (user_id, route, request)
SELECT TOP (@p1) k.user_id, k.route, k.request
FROM registration_key AS k WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK, FORCESEEK)
WHERE k.expires_at <= @now
ORDER BY k.expires_at
OPTION (MAXDOP 1);
SET NOCOUNT OFF;
DELETE k
FROM @expired AS e INNER JOIN registration_key AS k WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK, FORCESEEK)
    ON k.user_id = e.user_id AND k.route = e.route AND k.request = e.request
WHERE k.expires_at <= @now
OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
