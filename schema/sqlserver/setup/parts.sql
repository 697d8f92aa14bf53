-- The optional parts that this outbox has. Without the right to see a table's definition, none is found; the role has it.
SELECT p.Name
FROM (VALUES (N'joins', N'[dbo].[OutboxJoin]'), (N'inbox', N'[dbo].[OutboxEntry]')) AS p (Name, Relation)
WHERE OBJECT_ID(p.Relation, N'U') IS NOT NULL;
