-- The tables of the registration service. It can be run again: nothing that is there is changed.
-- Times are milliseconds since 1970, so that one Go code reads them from every database.

-- One row an event: what the catalog says of it, and the counters. Every writer locks it first.
CREATE TABLE IF NOT EXISTS registration_event (
    event_id       TEXT NOT NULL PRIMARY KEY,
    version        INTEGER NOT NULL,
    title          TEXT NOT NULL,
    organizer_id   TEXT NOT NULL,
    status         TEXT NOT NULL,
    capacity       INTEGER NOT NULL CHECK (capacity >= 0),
    waitlist_limit INTEGER NOT NULL CHECK (waitlist_limit >= -1),
    active_count   INTEGER NOT NULL CHECK (active_count >= 0),
    waitlist_count INTEGER NOT NULL CHECK (waitlist_count >= 0),
    last_number    INTEGER NOT NULL,
    revision       INTEGER NOT NULL
);

-- One row a user and event. number is given out under the event's lock, so its order is that of the commits.
CREATE TABLE IF NOT EXISTS registration (
    event_id     TEXT NOT NULL,
    user_id      TEXT NOT NULL,
    status       TEXT NOT NULL,
    number       INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    offer_until  INTEGER NOT NULL,
    PRIMARY KEY (event_id, user_id)
);
CREATE INDEX IF NOT EXISTS registration_by_number ON registration (event_id, status, number);
CREATE INDEX IF NOT EXISTS registration_by_user ON registration (user_id, created_at, event_id);

-- Who may not join an event; expires_at 0 is for ever.
CREATE TABLE IF NOT EXISTS registration_ban (
    event_id   TEXT NOT NULL,
    user_id    TEXT NOT NULL,
    reason     TEXT NOT NULL,
    banned_by  TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (event_id, user_id)
);

-- A response by the key of its request, written in the transaction of the request's effect.
CREATE TABLE IF NOT EXISTS registration_key (
    user_id    TEXT NOT NULL,
    route      TEXT NOT NULL,
    request    TEXT NOT NULL,
    hash       TEXT NOT NULL,
    status     INTEGER NOT NULL,
    headers    TEXT NOT NULL,
    body       BLOB NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (user_id, route, request)
);
CREATE INDEX IF NOT EXISTS registration_key_by_expiry ON registration_key (expires_at);
