-- The catalog's events, and what it has been told of their participants: the counters of the highest revision.
-- It can be run again: nothing that is there is changed.
CREATE TABLE IF NOT EXISTS catalog_event (
    event_id       TEXT NOT NULL PRIMARY KEY,
    version        INTEGER NOT NULL,
    title          TEXT NOT NULL,
    organizer_id   TEXT NOT NULL,
    status         TEXT NOT NULL,
    capacity       INTEGER NOT NULL,
    waitlist_limit INTEGER NOT NULL,
    active         INTEGER NOT NULL,
    waiting        INTEGER NOT NULL,
    revision       INTEGER NOT NULL
);
