-- The migrations that have run; version 0 has the checksum of the functions.
CREATE TABLE IF NOT EXISTS "public"."outbox_migrations" (
    version    integer     NOT NULL,
    checksum   text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT "outbox_migrations_pk" PRIMARY KEY (version)
);
