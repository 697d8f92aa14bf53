-- The application's own rows: what it has begun, and how it ended.
CREATE TABLE {workflows} (
    name    NVARCHAR(50)  NOT NULL PRIMARY KEY,
    outcome NVARCHAR(500) NULL
);
