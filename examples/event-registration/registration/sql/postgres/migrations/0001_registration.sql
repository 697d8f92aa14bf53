-- The tables of the registration service. It can be run again: nothing that is there is changed.
-- Times are milliseconds since 1970, so that one Go code reads them from every database.

SELECT pg_advisory_xact_lock(hashtextextended('registration', 0)); -- replicas that start at once migrate one after the other

-- One row an event: what the catalog says of it, and the counters. Every writer locks it first.
CREATE TABLE IF NOT EXISTS registration_event (
    event_id       text NOT NULL PRIMARY KEY,
    version        bigint NOT NULL,
    title          text NOT NULL,
    organizer_id   text NOT NULL,
    status         text NOT NULL,
    capacity       integer NOT NULL CHECK (capacity >= 0),
    waitlist_limit integer NOT NULL CHECK (waitlist_limit >= -1),
    active_count   integer NOT NULL CHECK (active_count >= 0),
    waitlist_count integer NOT NULL CHECK (waitlist_count >= 0),
    last_number    bigint NOT NULL,
    revision       bigint NOT NULL
);

-- One row a user and event. number is given out under the event's lock, so its order is that of the commits.
CREATE TABLE IF NOT EXISTS registration (
    event_id     text NOT NULL,
    user_id      text NOT NULL,
    status       text NOT NULL,
    number       bigint NOT NULL,
    created_at   bigint NOT NULL,
    updated_at   bigint NOT NULL,
    offer_until  bigint NOT NULL,
    PRIMARY KEY (event_id, user_id)
);
CREATE INDEX IF NOT EXISTS registration_by_number ON registration (event_id, status, number);
CREATE INDEX IF NOT EXISTS registration_by_user ON registration (user_id, created_at, event_id);

-- Who may not join an event; expires_at 0 is for ever.
CREATE TABLE IF NOT EXISTS registration_ban (
    event_id   text NOT NULL,
    user_id    text NOT NULL,
    reason     text NOT NULL,
    banned_by  text NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (event_id, user_id)
);

-- A response by the key of its request, written in the transaction of the request's effect.
CREATE TABLE IF NOT EXISTS registration_key (
    user_id    text NOT NULL,
    route      text NOT NULL,
    request    text NOT NULL,
    hash       text NOT NULL,
    status     integer NOT NULL,
    headers    text NOT NULL,
    body       bytea NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (user_id, route, request)
);
CREATE INDEX IF NOT EXISTS registration_key_by_expiry ON registration_key (expires_at);
