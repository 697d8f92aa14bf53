-- The application's own rows, and what its handlers have seen.
SET XACT_ABORT ON;
CREATE TABLE {orders} (
    name  NVARCHAR(255) NOT NULL PRIMARY KEY,
    topic NVARCHAR(255) NOT NULL
);
CREATE TABLE {handled} (
    id         BIGINT IDENTITY(1, 1) NOT NULL PRIMARY KEY,
    name       NVARCHAR(255)  NOT NULL,
    message_id NVARCHAR(36)   NOT NULL,
    worker     NVARCHAR(100)  NOT NULL,
    attempt    INT            NOT NULL,
    outcome    NVARCHAR(20)   NOT NULL,
    payload    VARBINARY(MAX) NOT NULL
);
