-- CREATE SCHEMA must be alone in its batch.
IF SCHEMA_ID(PARSENAME(N'[dbo]', 1)) IS NULL
    EXEC (N'CREATE SCHEMA [dbo]');
GO
