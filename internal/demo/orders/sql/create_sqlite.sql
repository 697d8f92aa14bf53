-- The application's own rows, and what its handlers have seen.
CREATE TABLE {orders} (
    name  TEXT NOT NULL PRIMARY KEY,
    topic TEXT NOT NULL
);
CREATE TABLE {handled} (
    id         INTEGER PRIMARY KEY,
    name       TEXT    NOT NULL,
    message_id TEXT    NOT NULL,
    worker     TEXT    NOT NULL,
    attempt    INTEGER NOT NULL,
    outcome    TEXT    NOT NULL,
    payload    BLOB    NOT NULL
);
