-- A role with no more rights than a worker or a publisher needs: the procedures, and reading the view.
-- The procedures reach the tables by ownership chaining. Add your users: ALTER ROLE [Outbox_Role] ADD MEMBER [user];
IF DATABASE_PRINCIPAL_ID(PARSENAME(N'[Outbox_Role]', 1)) IS NULL
    EXEC (N'CREATE ROLE [Outbox_Role]');
GO
GRANT EXECUTE ON [dbo].[Outbox_Enqueue] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Claim] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Settle] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Renew] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Reap] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Requeue] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Purge] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Topics] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Failed] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Get] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Join_Start] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Join_Attach] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Join_Report] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Join_Seal] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Join_Cancel] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Join_Wait] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Join_List] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Join_Members] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Join_Purge] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Entry_Add] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Entry_Get] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Entry_Save] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Entry_Purge] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Log_Enqueue] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Log_Stamp] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Log_Lease] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Log_Read] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Log_Purge] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Log_Forget] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Log_Begin] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Log_Next] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Log_Advance] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Ack] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Abandon] TO [Outbox_Role];
GRANT EXECUTE ON [dbo].[Outbox_Fail] TO [Outbox_Role];
GRANT SELECT ON [dbo].[Outbox_View] TO [Outbox_Role];
GRANT SELECT ON [dbo].[Outbox_Migrations] TO [Outbox_Role];
GO
IF OBJECT_ID(N'[dbo].[OutboxEntry_View]', N'V') IS NOT NULL
    EXEC (N'GRANT SELECT ON [dbo].[OutboxEntry_View] TO [Outbox_Role]');
GO
