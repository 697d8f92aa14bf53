-- One sentence per row for each missing object of joins.
SELECT N'table ' + w.Name + N' is missing'
FROM (VALUES (N'[dbo].[OutboxJoin]'), (N'[dbo].[OutboxJoinMember]'), (N'[dbo].[OutboxJoinSize]'), (N'[dbo].[OutboxJoinWait]')) AS w (Name)
WHERE OBJECT_ID(w.Name) IS NULL
UNION ALL
SELECT N'index ' + w.Name + N' of ' + w.TableName + N' is missing'
FROM (VALUES (N'[dbo].[OutboxJoin]', N'[IX_OutboxJoin_GroupingKey]'), (N'[dbo].[OutboxJoin]', N'[IX_OutboxJoin_Pending]'),
             (N'[dbo].[OutboxJoin]', N'[IX_OutboxJoin_Ended]'), (N'[dbo].[OutboxJoinMember]', N'[IX_OutboxJoinMember_MessageId]')) AS w (TableName, Name)
WHERE OBJECT_ID(w.TableName) IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM sys.indexes AS i WHERE i.object_id = OBJECT_ID(w.TableName) AND LEFT(i.name, LEN(PARSENAME(w.Name, 1))) = PARSENAME(w.Name, 1));
