-- Ends every live registration of an event that is canceled: event, time.
-- Whoever is to be told was listed before, under the event's lock. A thousand at a time: thousands of locks of one statement
-- become a lock of the table, and requests for other events would wait for it until the commit.
SET XACT_ABORT ON;
DECLARE @live TABLE (user_id NVARCHAR(64) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
DECLARE @ended INT = 1;
WHILE @ended > 0
BEGIN
    DELETE FROM @live WHERE 1 = 1;
    INSERT INTO @live (user_id)
    SELECT TOP (1000) r.user_id
    FROM registration AS r
    WHERE r.event_id = @p1 AND r.status IN ('active', 'waitlisted');
    UPDATE r
    SET status = 'canceled', updated_at = @p2, offer_until = 0
    FROM @live AS l INNER JOIN registration AS r WITH (FORCESEEK) ON r.event_id = @p1 AND r.user_id = l.user_id
    WHERE r.status IN ('active', 'waitlisted')
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
    SET @ended = @@ROWCOUNT;
END;
