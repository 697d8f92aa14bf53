-- The event store: an event is a message of the log that also has a version in a stream. The stream's row is moved before
-- its events are inserted, and stays locked until the commit, so that versions have no gap, and seq, position and commit
-- follow them. The rows are always there: purging the log must know which of its messages stay.
--
-- version is that of the last event. Events up to hidden were deleted, those up to purged are gone; a stream whose events are
-- all hidden counts as none, and goes on from its version. An archived stream takes no more events.
CREATE TABLE IF NOT EXISTS "public"."outbox_event_stream" (
    name      text    COLLATE "C" NOT NULL,
    stream_no bigint  GENERATED ALWAYS AS IDENTITY,
    version   bigint  NOT NULL,
    hidden    bigint  NOT NULL DEFAULT 0,
    purged    bigint  NOT NULL DEFAULT 0,
    archived  boolean NOT NULL DEFAULT false,
    CONSTRAINT "outbox_event_stream_pk" PRIMARY KEY (name),
    CONSTRAINT "outbox_event_stream_no" UNIQUE (stream_no)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

-- size is that of payload and headers in bytes, so that a page can be cut without looking at them.
CREATE TABLE IF NOT EXISTS "public"."outbox_event" (
    stream_no bigint  NOT NULL,
    version   bigint  NOT NULL,
    seq       bigint  NOT NULL,
    size      integer NOT NULL,
    CONSTRAINT "outbox_event_pk" PRIMARY KEY (stream_no, version),
    CONSTRAINT "outbox_event_seq" UNIQUE (seq)
);

-- How far the log holds nothing but events: purging, which leaves them, begins after that.
CREATE TABLE IF NOT EXISTS "public"."outbox_event_swept" (
    id       smallint NOT NULL,
    position bigint   NOT NULL,
    CONSTRAINT "outbox_event_swept_pk" PRIMARY KEY (id)
);

INSERT INTO "public"."outbox_event_swept" (id, position) VALUES (1, 0) ON CONFLICT (id) DO NOTHING;
