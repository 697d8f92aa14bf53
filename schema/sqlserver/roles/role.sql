-- A role with only the rights that a worker or a publisher needs: the procedures, and reading the view. The procedures reach
-- the tables by ownership chaining, but outbox.Check queries the catalog (OBJECT_ID) as the caller: without the right to see
-- its definition, a table seems to be missing. Add your users: ALTER ROLE … ADD MEMBER [user];
IF DATABASE_PRINCIPAL_ID(PARSENAME(N'[dbo_Outbox_Role]', 1)) IS NULL
    EXEC (N'CREATE ROLE [dbo_Outbox_Role]');
GO
GRANT EXECUTE ON [dbo].[Outbox_Enqueue] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Enqueue_One] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Work] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Claim] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Settle] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Stage_Save] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Renew] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Reap] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Requeue] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Purge] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Topics] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Failed] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Held] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Get] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Dead_Scan] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_List] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Story] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Join_Of] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Health] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Worker_Beat] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Worker_List] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Worker_Purge] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Leases] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Log_Groups] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_End] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Delay] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Topic_Pause] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Topic_Resume] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Topic_Paused] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Audit_Add] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Audit_List] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Audit_Purge] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Stream_Enqueue] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Stream_List] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Stream_Resume] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Stream_Take] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Stream_Topics] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Join_Start] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Join_Attach] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Join_Report] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Join_Seal] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Join_Cancel] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Join_Wait] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Join_List] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Join_Members] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Join_Purge] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Entry_Add] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Entry_Get] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Entry_Save] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Entry_Purge] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Log_Enqueue] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Log_Stamp] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Log_Lease] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Log_Read] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Log_Purge] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Log_Forget] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Log_Skip] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Log_Dead_Add] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Log_Dead_List] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Log_Dead_Requeue] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Log_Dead_Discard] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Event_Append] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Event_Append_One] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Event_Read] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Event_Read_All] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Event_Change] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Event_Purge] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Event_Wait] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Log_Begin] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Log_Next] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Log_Advance] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Ack] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Abandon] TO [dbo_Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Fail] TO [dbo_Outbox_Role];
GRANT SELECT ON [dbo].[Outbox_View] TO [dbo_Outbox_Role];
GRANT SELECT ON [dbo].[Outbox_Migrations] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox_State] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox_Lease] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox_Attempt] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox_Worker] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox_Wake] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox_Arrival] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox_Router] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox_Stream] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox_Queue] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox_Log] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox_Log_Pending] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox_Log_Counter] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox_Log_Group] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox_Log_Dead] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox_Event] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox_Event_Stream] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox_Event_Swept] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox_Paused] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox_Audit] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox_Kept] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox_Give_Back] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox_Worker_Number] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox_Stream_Route] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox_Stream_Claim] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox_Stream_Free] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox_Attempt_Purge] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox_Join_Count] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox_Join_Wake] TO [dbo_Outbox_Role];
GRANT VIEW DEFINITION ON [dbo].[Outbox_Join_Advance] TO [dbo_Outbox_Role];
GO
IF OBJECT_ID(N'[dbo].[OutboxJoin]', N'U') IS NOT NULL
BEGIN
    EXEC (N'GRANT VIEW DEFINITION ON [dbo].[OutboxJoin] TO [dbo_Outbox_Role]');
    EXEC (N'GRANT VIEW DEFINITION ON [dbo].[OutboxJoinMember] TO [dbo_Outbox_Role]');
    EXEC (N'GRANT VIEW DEFINITION ON [dbo].[OutboxJoinSize] TO [dbo_Outbox_Role]');
    EXEC (N'GRANT VIEW DEFINITION ON [dbo].[OutboxJoinWait] TO [dbo_Outbox_Role]');
END
GO
IF OBJECT_ID(N'[dbo].[OutboxEntry]', N'U') IS NOT NULL
    EXEC (N'GRANT VIEW DEFINITION ON [dbo].[OutboxEntry] TO [dbo_Outbox_Role]');
GO
IF OBJECT_ID(N'[dbo].[OutboxEntry_View]', N'V') IS NOT NULL
    EXEC (N'GRANT SELECT ON [dbo].[OutboxEntry_View] TO [dbo_Outbox_Role]');
GO
