-- The application's own rows: what it has begun, and how it ended.
CREATE TABLE {workflows} (
    name    text NOT NULL PRIMARY KEY,
    outcome text NULL
);
