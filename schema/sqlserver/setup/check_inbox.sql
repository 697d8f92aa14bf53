-- One sentence per row for each missing object of the inbox.
SELECT w.Kind + N' ' + w.Name + N' is missing'
FROM (VALUES (N'table', N'[dbo].[OutboxEntry]'), (N'view', N'[dbo].[OutboxEntry_View]')) AS w (Kind, Name)
WHERE OBJECT_ID(w.Name) IS NULL
UNION ALL
SELECT N'index ' + w.Name + N' of ' + w.TableName + N' is missing'
FROM (VALUES (N'[dbo].[OutboxEntry]', N'[UQ_OutboxEntry_Key]'),
             (N'[dbo].[OutboxEntry]', N'[IX_OutboxEntry_LastSeenAt]')) AS w (TableName, Name)
WHERE OBJECT_ID(w.TableName) IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM sys.indexes AS i WHERE i.object_id = OBJECT_ID(w.TableName) AND LEFT(i.name, LEN(PARSENAME(w.Name, 1))) = PARSENAME(w.Name, 1));
