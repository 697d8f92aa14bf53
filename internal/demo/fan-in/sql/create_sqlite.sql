-- The application's own rows: what it has begun, and how it ended.
CREATE TABLE {workflows} (
    name    TEXT NOT NULL PRIMARY KEY,
    outcome TEXT NULL
);
