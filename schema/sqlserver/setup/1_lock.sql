-- Keeps other migrations of this outbox out until the transaction ends.
DECLARE @Result INT;
DECLARE @Resource NVARCHAR(255) = LEFT(N'watermill-outbox [dbo].[Outbox]', 255);
EXEC @Result = sp_getapplock @Resource = @Resource, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 60000;
IF @Result < 0
    THROW 51000, 'another migration of this outbox is running; try again when it is done', 1;
GO
