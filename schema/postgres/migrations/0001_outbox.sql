-- The outbox: a message's contents and its state are separate tables. No table refers to another by a foreign key: the check
-- would wait for rows that a caller's transaction may hold for any length of time.
--
-- In all migrations, indexes and views are looked for first: CREATE INDEX IF NOT EXISTS waits for the writers of its table, and
-- CREATE OR REPLACE VIEW for readers, even if there is nothing to do, and whoever comes later waits behind them.

-- Only times that a client can read: one row with infinity would stop every claim. A domain instead of a CHECK, because the
-- server parses a CHECK again for each statement, which costs a fifth of publishing one message.
DO $outbox_time$
BEGIN
    IF to_regtype('"public"."outbox_time"') IS NULL THEN
        CREATE DOMAIN "public"."outbox_time" AS timestamptz CHECK (isfinite(VALUE));
    END IF;
END
$outbox_time$;

-- Contents: written once by publishers, and deleted by purging when nothing needs them. seq identifies the message in all
-- these tables and grows with every insert; message_id identifies it outside. topic_key is the first eight bytes of the
-- SHA-256 of the topic: fixed width for states and indexes, and the same on every database. stream_id is the same for topic
-- and stream key, or NULL without a key.
CREATE TABLE IF NOT EXISTS "public"."outbox" (
    seq            bigint      GENERATED ALWAYS AS IDENTITY,
    message_id     uuid        NOT NULL,
    uuid           text        NOT NULL,
    topic          text        COLLATE "C" NOT NULL,
    topic_key      bigint      NOT NULL,
    payload        bytea       NOT NULL,
    headers        text        NULL,
    correlation_id text        NULL,
    stream_key     text        COLLATE "C" NULL,
    stream_id      bigint      NULL,
    created_at     "public"."outbox_time" NOT NULL DEFAULT clock_timestamp(),
    due_at         "public"."outbox_time" NULL,
    CONSTRAINT "outbox_pk" PRIMARY KEY (seq),
    CONSTRAINT "outbox_message_id" UNIQUE (message_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);

-- States, all fixed width: settling rewrites about eighty bytes, whatever the size of the message. size is the size of
-- payload and headers in bytes. next_attempt_at alone decides when a message is eligible: the due time of a new one, the end
-- of the backoff of one that failed. status: 0 ready, 1 in progress (leased), 2 done, 3 failed, 5 ready in its stream;
-- owner_token is set if and only if status is 1. flags: 1 joins depend on the message, 2 the log depends on it, 4 it failed
-- and does not block its stream. stages: bits for what has happened to the message, see middleware.Stages; NULL, which takes
-- no space, without any. A message for the log alone has no state, and readers give it status 4. DeleteOnAck deletes the state
-- with the acknowledgement.
-- ready (status is 0) and dead_at (processed_at if status is 3) are for the indexes: as these do not depend on status, settling
-- a message and claiming one of a stream write to no index, if the page has room for the new version. Three tenths of each
-- page are left for that: more of it costs publishers, who extend the table. Statements that change the status keep the two
-- right: as generated columns they cost each row a copy, and each statement the preparation of their expressions.
CREATE TABLE IF NOT EXISTS "public"."outbox_state" (
    seq             bigint      NOT NULL,
    topic_key       bigint      NOT NULL,
    stream_id       bigint      NULL,
    next_attempt_at "public"."outbox_time" NOT NULL,
    processed_at    "public"."outbox_time" NULL,
    owner_token     uuid        NULL,
    size            integer     NOT NULL DEFAULT 0,
    retry_count     integer     NOT NULL DEFAULT 0,
    worker_id       integer     NULL,
    status          smallint    NOT NULL DEFAULT 0,
    flags           smallint    NOT NULL DEFAULT 0,
    stages          integer     NULL,
    ready           boolean     NOT NULL DEFAULT true,
    dead_at         "public"."outbox_time" NULL,
    CONSTRAINT "outbox_state_pk" PRIMARY KEY (seq)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);

DO $outbox$
BEGIN
    -- For claims, which are range seeks: only ready rows, in the order in which they are taken.
    IF to_regclass('"public"."outbox_ready"') IS NULL THEN
        CREATE INDEX "outbox_ready" ON "public"."outbox_state" (topic_key, next_attempt_at, seq) WHERE ready;
    END IF;

    -- Dead letters by age. Done messages are in no index: they are purged in order of seq.
    IF to_regclass('"public"."outbox_dead"') IS NULL THEN
        CREATE INDEX "outbox_dead" ON "public"."outbox_state" (dead_at, seq) WHERE dead_at IS NOT NULL;
    END IF;
END
$outbox$;

-- One lease per claim: renewing it writes one row, however many messages it holds, and a held message is in no index. seqs
-- is what was claimed, so that it can be given back when the lease expires. It is not compressed, which would cost a
-- twentieth of a claim.
CREATE TABLE IF NOT EXISTS "public"."outbox_lease" (
    owner_token  uuid        NOT NULL,
    worker_id    integer     NOT NULL,
    locked_until "public"."outbox_time" NOT NULL,
    seqs         bigint[]    NOT NULL,
    streams      bigint[]    NOT NULL DEFAULT '{}',
    CONSTRAINT "outbox_lease_pk" PRIMARY KEY (owner_token)
) WITH (toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0.02);

DO $outbox$
BEGIN
    IF to_regclass('"public"."outbox_leased"') IS NULL THEN
        CREATE INDEX "outbox_leased" ON "public"."outbox_lease" (locked_until, owner_token);
    END IF;
END
$outbox$;

-- Attempts that did not succeed, with their errors. outcome: 1 retried, 2 released with a reason, 3 failed, 4 the lease
-- expired, 5 ended by an operator.
CREATE TABLE IF NOT EXISTS "public"."outbox_attempt" (
    seq         bigint      NOT NULL,
    attempt_id  bigint      GENERATED ALWAYS AS IDENTITY,
    happened_at timestamptz NOT NULL,
    worker_id   integer     NOT NULL,
    attempt     integer     NOT NULL,
    outcome     smallint    NOT NULL,
    error       text        NULL,
    CONSTRAINT "outbox_attempt_pk" PRIMARY KEY (seq, attempt_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

-- Workers, numbered in four bytes. A name may have several rows. seen_at is the last heartbeat; a process that only makes plain
-- calls has none. lives_until: when another heartbeat must have come. stopped_at is set by a worker that has ended.
CREATE TABLE IF NOT EXISTS "public"."outbox_worker" (
    worker_id   integer     GENERATED ALWAYS AS IDENTITY,
    name        text        COLLATE "C" NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at     timestamptz NULL,
    lives_until timestamptz NOT NULL DEFAULT clock_timestamp(),
    stopped_at  timestamptz NULL,
    CONSTRAINT "outbox_worker_pk" PRIMARY KEY (worker_id)
);

DO $outbox$
BEGIN
    IF to_regclass('"public"."outbox_worker_name"') IS NULL THEN
        CREATE INDEX "outbox_worker_name" ON "public"."outbox_worker" (name, worker_id);
    END IF;

    -- To count those that live, and to purge the others.
    IF to_regclass('"public"."outbox_worker_lives"') IS NULL THEN
        CREATE INDEX "outbox_worker_lives" ON "public"."outbox_worker" (lives_until, worker_id);
    END IF;
END
$outbox$;

-- Messages to make due because the join they wait for has ended, but which somebody had locked then: the next claim does it.
CREATE TABLE IF NOT EXISTS "public"."outbox_wake" (
    wake_id bigint GENERATED ALWAYS AS IDENTITY,
    seq     bigint NOT NULL,
    CONSTRAINT "outbox_wake_pk" PRIMARY KEY (wake_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

-- Streams: messages of one topic and stream key are delivered one after the other. Publishers only insert arrivals, so that
-- they do not wait for each other. Routers move committed messages to the queues, in order of arrival_id, which grows with every
-- insert. A stream is in one lane, and a lane has one router at a time (its row of outbox_router), so that several claims can
-- route at once. A stream's row is its lease, and its lock guards its queue: claiming, routing and freeing a stream hold it.
-- lane is stream_id & 3. It is not generated, because logical replication sends no generated columns, and finds rows by their key.
CREATE TABLE IF NOT EXISTS "public"."outbox_arrival" (
    arrival_id bigint   GENERATED ALWAYS AS IDENTITY,
    seq        bigint   NOT NULL,
    stream_id  bigint   NOT NULL,
    topic_key  bigint   NOT NULL,
    lane       smallint NOT NULL,
    CONSTRAINT "outbox_arrival_pk" PRIMARY KEY (lane, arrival_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

-- Up to low nothing arrives any longer in the lane, so that routing begins after it, and skips the dead entries of what was routed
-- before. The same will hold up to high as soon as the transactions in writers have ended, which were inserting when high was noted.
CREATE TABLE IF NOT EXISTS "public"."outbox_router" (
    lane    smallint NOT NULL,
    turn    bigint   NOT NULL,
    low     bigint   NOT NULL DEFAULT 0,
    high    bigint   NOT NULL DEFAULT 0,
    writers text[]   NOT NULL DEFAULT '{}',
    CONSTRAINT "outbox_router_pk" PRIMARY KEY (lane)
) WITH (fillfactor = 50);

INSERT INTO "public"."outbox_router" (lane, turn) VALUES (0, 0), (1, 0), (2, 0), (3, 0) ON CONFLICT (lane) DO NOTHING;

-- A row exists while a message waits or is being handled. status: 0 ready, 1 leased, 2 blocked by a message that has failed.
-- next_attempt_at: when its head is due, or since when it has been waiting to be served. run_last: no message that is being
-- handled or has ended is behind it, except for a head that was ended outside a run. head: the only message of a stream that
-- had none before; it is in no queue. NULL from the first time that the stream is locked for more than claiming it.
CREATE TABLE IF NOT EXISTS "public"."outbox_stream" (
    stream_id       bigint      NOT NULL,
    topic_key       bigint      NOT NULL,
    next_attempt_at "public"."outbox_time" NOT NULL,
    run_last        bigint      NOT NULL DEFAULT 0,
    head            bigint      NULL,
    owner_token     uuid        NULL,
    status          smallint    NOT NULL DEFAULT 0,
    CONSTRAINT "outbox_stream_pk" PRIMARY KEY (stream_id),
    CONSTRAINT "outbox_stream_held" CHECK ((status = 1) = (owner_token IS NOT NULL))
) WITH (autovacuum_vacuum_scale_factor = 0.02);

DO $outbox$
BEGIN
    -- Only streams that may be served, those that have waited longest first.
    IF to_regclass('"public"."outbox_stream_ready"') IS NULL THEN
        CREATE INDEX "outbox_stream_ready" ON "public"."outbox_stream" (topic_key, next_attempt_at, stream_id) WHERE status = 0;
    END IF;

    IF to_regclass('"public"."outbox_stream_blocked"') IS NULL THEN
        CREATE INDEX "outbox_stream_blocked" ON "public"."outbox_stream" (topic_key, stream_id) WHERE status = 2;
    END IF;
END
$outbox$;

CREATE TABLE IF NOT EXISTS "public"."outbox_queue" (
    stream_id bigint NOT NULL,
    seq       bigint NOT NULL,
    CONSTRAINT "outbox_queue_pk" PRIMARY KEY (stream_id, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
