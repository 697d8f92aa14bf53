-- Fills the tables of joins: the messages 0 to @p1 - 1 are steps, @p2 a join.
UPDATE {{.State}} SET Flags = 1;

SET XACT_ABORT ON;
DECLARE @Numbers TABLE (n BIGINT NOT NULL PRIMARY KEY);
INSERT INTO @Numbers (n)
SELECT m.n
FROM (SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d + 100000 * g.d AS n
      FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS a (d)
      CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS b (d)
      CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS c (d)
      CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS e (d)
      CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS f (d)
      CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS g (d)) AS m
WHERE m.n < @p1;

INSERT INTO {{.Join}} (JoinId, ExpectedSteps)
SELECT CAST('00000000-0000-8000-9000-' + RIGHT('000000000000' + CAST(j.n / @p2 AS VARCHAR(12)), 12) AS UNIQUEIDENTIFIER),
       CASE WHEN @p1 - j.n < @p2 THEN @p1 - j.n ELSE @p2 END
FROM @Numbers AS j
WHERE j.n % @p2 = 0;

INSERT INTO {{.JoinSize}} (JoinId, Attached) SELECT JoinId, ExpectedSteps FROM {{.Join}};

INSERT INTO {{.JoinMember}} (JoinId, OutboxMessageId)
SELECT CAST('00000000-0000-8000-9000-' + RIGHT('000000000000' + CAST(m.n / @p2 AS VARCHAR(12)), 12) AS UNIQUEIDENTIFIER),
       CAST('00000000-0000-8000-8000-' + RIGHT('000000000000' + CAST(m.n AS VARCHAR(12)), 12) AS UNIQUEIDENTIFIER)
FROM @Numbers AS m;
