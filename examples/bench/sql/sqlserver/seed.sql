-- Fills the table: the messages @p1 to @p1 + @p2 - 1, spread over @p3 topics, whose keys are @p6. Every hundredth is due in an hour if @p4 is 1.
-- @p5 is their payload. Ids grow as those of publishers do, in the order in which they are compared here.
INSERT INTO {{.Outbox}} (MessageId, Uuid, Topic, TopicKey, Payload, DueTimeUtc)
OUTPUT inserted.Seq, inserted.TopicKey, COALESCE(inserted.DueTimeUtc, SYSUTCDATETIME()), CAST(DATALENGTH(inserted.Payload) AS INT)
INTO {{.State}} (Seq, TopicKey, NextAttemptAt, Size)
SELECT CAST('00000000-0000-8000-8000-' + RIGHT('000000000000' + CAST(m.n AS VARCHAR(12)), 12) AS UNIQUEIDENTIFIER),
       CAST(m.n AS NVARCHAR(20)), N'bench-' + CAST(m.n % @p3 AS NVARCHAR(20)),
       CAST(JSON_VALUE(@p6, '$[' + CAST(m.n % @p3 AS NVARCHAR(20)) + ']') AS BIGINT), @p5,
       CASE WHEN @p4 = 1 AND m.n / @p3 % 100 = 99 THEN DATEADD(HOUR, 1, SYSUTCDATETIME()) END
FROM (SELECT TOP (@p2) CAST(@p1 AS BIGINT)
             + a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d + 100000 * g.d + 1000000 * h.d AS n
      FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS a (d)
      CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS b (d)
      CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS c (d)
      CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS e (d)
      CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS f (d)
      CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS g (d)
      CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS h (d)
      WHERE a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d + 100000 * g.d + 1000000 * h.d < @p2) AS m
ORDER BY m.n;
