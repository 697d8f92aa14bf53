-- The parts of the outbox that not every one has. Who may not see the definition of a table sees none; the role may.
SELECT p.Name
FROM (VALUES (N'joins', N'[dbo].[OutboxJoin]'), (N'inbox', N'[dbo].[OutboxEntry]')) AS p (Name, Relation)
WHERE OBJECT_ID(p.Relation, N'U') IS NOT NULL;
