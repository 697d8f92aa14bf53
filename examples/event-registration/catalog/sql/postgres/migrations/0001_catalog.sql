-- The catalog's events, and what it has been told of their participants: the counters of the highest revision.
-- It can be run again: nothing that is there is changed.
SELECT pg_advisory_xact_lock(hashtextextended('catalog', 0)); -- replicas that start at once migrate one after the other
CREATE TABLE IF NOT EXISTS catalog_event (
    event_id       text NOT NULL PRIMARY KEY,
    version        bigint NOT NULL,
    title          text NOT NULL,
    organizer_id   text NOT NULL,
    status         text NOT NULL,
    capacity       bigint NOT NULL,
    waitlist_limit bigint NOT NULL,
    active         bigint NOT NULL,
    waiting        bigint NOT NULL,
    revision       bigint NOT NULL
);
