-- The application's own rows, and what its handlers have seen.
CREATE TABLE {orders} (
    name  text NOT NULL PRIMARY KEY,
    topic text NOT NULL
);
CREATE TABLE {handled} (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text    NOT NULL,
    message_id text    NOT NULL,
    worker     text    NOT NULL,
    attempt    integer NOT NULL,
    outcome    text    NOT NULL,
    payload    bytea   NOT NULL
);
