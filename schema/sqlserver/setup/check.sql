-- One sentence per row for each missing object, and for unsuitable settings: filtered indexes need QUOTED_IDENTIFIER and
-- ANSI_NULLS ON in procedures, OPENJSON needs compatibility level 130.
SELECT w.Kind + N' ' + w.Name + N' is missing'
FROM (VALUES
    (N'table', N'[dbo].[Outbox]'),
    (N'table', N'[dbo].[Outbox_State]'),
    (N'table', N'[dbo].[Outbox_Lease]'),
    (N'table', N'[dbo].[Outbox_Attempt]'),
    (N'table', N'[dbo].[Outbox_Worker]'),
    (N'table', N'[dbo].[Outbox_Wake]'),
    (N'table', N'[dbo].[Outbox_Arrival]'),
    (N'table', N'[dbo].[Outbox_Router]'),
    (N'table', N'[dbo].[Outbox_Stream]'),
    (N'table', N'[dbo].[Outbox_Queue]'),
    (N'table', N'[dbo].[Outbox_Log]'),
    (N'table', N'[dbo].[Outbox_Log_Pending]'),
    (N'table', N'[dbo].[Outbox_Log_Counter]'),
    (N'table', N'[dbo].[Outbox_Log_Group]'),
    (N'table', N'[dbo].[Outbox_Log_Dead]'),
    (N'view', N'[dbo].[Outbox_View]'),
    (N'view', N'[dbo].[Outbox_Kept]'),
    (N'procedure', N'[dbo].[Outbox_Enqueue]'),
    (N'procedure', N'[dbo].[Outbox_Enqueue_One]'),
    (N'procedure', N'[dbo].[Outbox_Work]'),
    (N'procedure', N'[dbo].[Outbox_Claim]'),
    (N'procedure', N'[dbo].[Outbox_Settle]'),
    (N'procedure', N'[dbo].[Outbox_Stage_Save]'),
    (N'procedure', N'[dbo].[Outbox_Renew]'),
    (N'procedure', N'[dbo].[Outbox_Reap]'),
    (N'procedure', N'[dbo].[Outbox_Requeue]'),
    (N'procedure', N'[dbo].[Outbox_Purge]'),
    (N'procedure', N'[dbo].[Outbox_Topics]'),
    (N'procedure', N'[dbo].[Outbox_Failed]'),
    (N'procedure', N'[dbo].[Outbox_Get]'),
    (N'procedure', N'[dbo].[Outbox_Stream_Enqueue]'),
    (N'procedure', N'[dbo].[Outbox_Stream_List]'),
    (N'procedure', N'[dbo].[Outbox_Stream_Resume]'),
    (N'procedure', N'[dbo].[Outbox_Stream_Take]'),
    (N'procedure', N'[dbo].[Outbox_Stream_Topics]'),
    (N'procedure', N'[dbo].[Outbox_Stream_Route]'),
    (N'procedure', N'[dbo].[Outbox_Stream_Claim]'),
    (N'procedure', N'[dbo].[Outbox_Stream_Free]'),
    (N'procedure', N'[dbo].[Outbox_Join_Start]'),
    (N'procedure', N'[dbo].[Outbox_Join_Attach]'),
    (N'procedure', N'[dbo].[Outbox_Join_Report]'),
    (N'procedure', N'[dbo].[Outbox_Join_Seal]'),
    (N'procedure', N'[dbo].[Outbox_Join_Cancel]'),
    (N'procedure', N'[dbo].[Outbox_Join_Wait]'),
    (N'procedure', N'[dbo].[Outbox_Join_List]'),
    (N'procedure', N'[dbo].[Outbox_Join_Members]'),
    (N'procedure', N'[dbo].[Outbox_Join_Purge]'),
    (N'procedure', N'[dbo].[Outbox_Give_Back]'),
    (N'procedure', N'[dbo].[Outbox_Worker_Number]'),
    (N'procedure', N'[dbo].[Outbox_Join_Count]'),
    (N'procedure', N'[dbo].[Outbox_Join_Wake]'),
    (N'procedure', N'[dbo].[Outbox_Join_Advance]'),
    (N'procedure', N'[dbo].[Outbox_Entry_Add]'),
    (N'procedure', N'[dbo].[Outbox_Entry_Get]'),
    (N'procedure', N'[dbo].[Outbox_Entry_Save]'),
    (N'procedure', N'[dbo].[Outbox_Entry_Purge]'),
    (N'procedure', N'[dbo].[Outbox_Log_Enqueue]'),
    (N'procedure', N'[dbo].[Outbox_Log_Stamp]'),
    (N'procedure', N'[dbo].[Outbox_Log_Lease]'),
    (N'procedure', N'[dbo].[Outbox_Log_Read]'),
    (N'procedure', N'[dbo].[Outbox_Log_Purge]'),
    (N'procedure', N'[dbo].[Outbox_Log_Forget]'),
    (N'procedure', N'[dbo].[Outbox_Log_Dead_Add]'),
    (N'procedure', N'[dbo].[Outbox_Log_Dead_List]'),
    (N'procedure', N'[dbo].[Outbox_Log_Dead_Requeue]'),
    (N'procedure', N'[dbo].[Outbox_Log_Dead_Discard]'),
    (N'procedure', N'[dbo].[Outbox_Log_Begin]'),
    (N'procedure', N'[dbo].[Outbox_Log_Next]'),
    (N'procedure', N'[dbo].[Outbox_Log_Advance]'),
    (N'procedure', N'[dbo].[Outbox_Ack]'),
    (N'procedure', N'[dbo].[Outbox_Abandon]'),
    (N'procedure', N'[dbo].[Outbox_Fail]')) AS w (Kind, Name)
WHERE OBJECT_ID(w.Name) IS NULL
UNION ALL
SELECT N'index ' + w.Name + N' of ' + w.TableName + N' is missing'
FROM (VALUES (N'[dbo].[Outbox_State]', N'[IX_Outbox_State_Ready]'), (N'[dbo].[Outbox_State]', N'[IX_Outbox_State_Dead]'),
             (N'[dbo].[Outbox_Lease]', N'[IX_Outbox_Lease_LockedUntil]'), (N'[dbo].[Outbox_Worker]', N'[IX_Outbox_Worker_Name]'),
             (N'[dbo].[Outbox_Stream]', N'[IX_Outbox_Stream_Ready]'), (N'[dbo].[Outbox_Stream]', N'[IX_Outbox_Stream_Blocked]'),
             (N'[dbo].[Outbox_Log_Pending]', N'[IX_Outbox_Log_Pending_MessageId]'),
             (N'[dbo].[Outbox_Log]', N'[IX_Outbox_Log_Topic]'), (N'[dbo].[Outbox_Log]', N'[IX_Outbox_Log_MessageId]'),
             (N'[dbo].[Outbox_Log_Dead]', N'[IX_Outbox_Log_Dead_Position]'),
             (N'[dbo].[Outbox_Log_Dead]', N'[IX_Outbox_Log_Dead_Requeued]')) AS w (TableName, Name)
WHERE OBJECT_ID(w.TableName) IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM sys.indexes AS i WHERE i.object_id = OBJECT_ID(w.TableName) AND LEFT(i.name, LEN(PARSENAME(w.Name, 1))) = PARSENAME(w.Name, 1))
UNION ALL
SELECT N'column ' + w.Name + N' of ' + w.TableName + N' is missing'
FROM (VALUES (N'[dbo].[Outbox]', N'Seq'), (N'[dbo].[Outbox]', N'MessageId'), (N'[dbo].[Outbox]', N'Uuid'), (N'[dbo].[Outbox]', N'Topic'),
             (N'[dbo].[Outbox]', N'TopicKey'), (N'[dbo].[Outbox]', N'Payload'), (N'[dbo].[Outbox]', N'Headers'),
             (N'[dbo].[Outbox]', N'CorrelationId'), (N'[dbo].[Outbox]', N'StreamKey'), (N'[dbo].[Outbox]', N'CreatedAt'),
             (N'[dbo].[Outbox]', N'DueTimeUtc'), (N'[dbo].[Outbox]', N'StreamId'), (N'[dbo].[Outbox_State]', N'StreamId'),
             (N'[dbo].[Outbox_State]', N'Seq'), (N'[dbo].[Outbox_State]', N'TopicKey'), (N'[dbo].[Outbox_State]', N'NextAttemptAt'),
             (N'[dbo].[Outbox_State]', N'ProcessedAt'), (N'[dbo].[Outbox_State]', N'OwnerToken'), (N'[dbo].[Outbox_State]', N'Size'),
             (N'[dbo].[Outbox_State]', N'RetryCount'), (N'[dbo].[Outbox_State]', N'WorkerId'), (N'[dbo].[Outbox_State]', N'Status'),
             (N'[dbo].[Outbox_State]', N'Flags'), (N'[dbo].[Outbox_State]', N'Stages'),
             (N'[dbo].[Outbox_Lease]', N'OwnerToken'), (N'[dbo].[Outbox_Lease]', N'WorkerId'), (N'[dbo].[Outbox_Lease]', N'LockedUntil'),
             (N'[dbo].[Outbox_Lease]', N'Seqs'), (N'[dbo].[Outbox_Lease]', N'Streams')) AS w (TableName, Name)
WHERE OBJECT_ID(w.TableName) IS NOT NULL AND COL_LENGTH(w.TableName, w.Name) IS NULL
UNION ALL
SELECT N'the table [dbo].[Outbox] is of an earlier layout, with contents and states in one, and cannot be carried over: have its messages handled, drop its tables and migrate, or install under another Table'
WHERE COL_LENGTH(N'[dbo].[Outbox]', N'LockedUntil') IS NOT NULL
UNION ALL
SELECT N'procedure ' + o.name + N' was created with ANSI_NULLS or QUOTED_IDENTIFIER OFF: run the migration again with both ON'
FROM sys.sql_modules AS m INNER JOIN sys.objects AS o ON o.object_id = m.object_id
WHERE (m.uses_ansi_nulls = 0 OR m.uses_quoted_identifier = 0)
  AND m.object_id IN (OBJECT_ID(N'[dbo].[Outbox_Enqueue]'), OBJECT_ID(N'[dbo].[Outbox_Enqueue_One]'),
                      OBJECT_ID(N'[dbo].[Outbox_Work]'), OBJECT_ID(N'[dbo].[Outbox_Claim]'), OBJECT_ID(N'[dbo].[Outbox_Settle]'),
                      OBJECT_ID(N'[dbo].[Outbox_Stage_Save]'), OBJECT_ID(N'[dbo].[Outbox_Renew]'), OBJECT_ID(N'[dbo].[Outbox_Reap]'), OBJECT_ID(N'[dbo].[Outbox_Requeue]'),
                      OBJECT_ID(N'[dbo].[Outbox_Purge]'), OBJECT_ID(N'[dbo].[Outbox_Topics]'),
                      OBJECT_ID(N'[dbo].[Outbox_Failed]'), OBJECT_ID(N'[dbo].[Outbox_Get]'),
                      OBJECT_ID(N'[dbo].[Outbox_Log_Enqueue]'), OBJECT_ID(N'[dbo].[Outbox_Log_Stamp]'),
                      OBJECT_ID(N'[dbo].[Outbox_Log_Purge]'), OBJECT_ID(N'[dbo].[Outbox_Log_Dead_Add]'),
                      OBJECT_ID(N'[dbo].[Outbox_Log_Dead_List]'), OBJECT_ID(N'[dbo].[Outbox_Log_Dead_Requeue]'),
                      OBJECT_ID(N'[dbo].[Outbox_Log_Dead_Discard]'), OBJECT_ID(N'[dbo].[Outbox_Join_Start]'), OBJECT_ID(N'[dbo].[Outbox_Join_Attach]'),
                      OBJECT_ID(N'[dbo].[Outbox_Join_Report]'), OBJECT_ID(N'[dbo].[Outbox_Join_Seal]'),
                      OBJECT_ID(N'[dbo].[Outbox_Join_Cancel]'), OBJECT_ID(N'[dbo].[Outbox_Join_Wait]'),
                      OBJECT_ID(N'[dbo].[Outbox_Join_Purge]'), OBJECT_ID(N'[dbo].[Outbox_Join_Count]'), OBJECT_ID(N'[dbo].[Outbox_Join_Wake]'),
                      OBJECT_ID(N'[dbo].[Outbox_Join_Advance]'),
                      OBJECT_ID(N'[dbo].[Outbox_Give_Back]'), OBJECT_ID(N'[dbo].[Outbox_Worker_Number]'),
                      OBJECT_ID(N'[dbo].[Outbox_Stream_Enqueue]'),
                      OBJECT_ID(N'[dbo].[Outbox_Stream_List]'),
                      OBJECT_ID(N'[dbo].[Outbox_Stream_Resume]'),
                      OBJECT_ID(N'[dbo].[Outbox_Stream_Take]'),
                      OBJECT_ID(N'[dbo].[Outbox_Stream_Topics]'),
                      OBJECT_ID(N'[dbo].[Outbox_Stream_Route]'),
                      OBJECT_ID(N'[dbo].[Outbox_Stream_Claim]'),
                      OBJECT_ID(N'[dbo].[Outbox_Stream_Free]'),
                      OBJECT_ID(N'[dbo].[Outbox_Entry_Add]'), OBJECT_ID(N'[dbo].[Outbox_Entry_Save]'), OBJECT_ID(N'[dbo].[Outbox_Entry_Purge]'))
UNION ALL
SELECT N'the compatibility level of the database is ' + CAST(d.compatibility_level AS NVARCHAR(10)) + N': set it to 130 or more'
FROM sys.databases AS d WHERE d.database_id = DB_ID() AND d.compatibility_level < 130;
