-- What operators do: topics that are paused, and a record of what was done. Claims look here, so the tables are always there.
--
-- Nothing of a paused topic is claimed. topic_key is that of the messages, so that a claim needs no text.
CREATE TABLE IF NOT EXISTS "public"."outbox_paused" (
    topic_key bigint NOT NULL,
    topic     text   COLLATE "C" NOT NULL,
    paused_at "public"."outbox_time" NOT NULL DEFAULT clock_timestamp(),
    paused_by text   NOT NULL,
    reason    text   NOT NULL,
    CONSTRAINT "outbox_paused_pk" PRIMARY KEY (topic_key)
);

-- One row an act of an operator; each of its batches adds to affected. selection says in words what it was done to.
CREATE TABLE IF NOT EXISTS "public"."outbox_audit" (
    audit_no    bigint  GENERATED ALWAYS AS IDENTITY,
    happened_at "public"."outbox_time" NOT NULL DEFAULT clock_timestamp(),
    actor       text    NOT NULL,
    act         text    NOT NULL,
    selection   text    NOT NULL,
    affected    integer NOT NULL,
    CONSTRAINT "outbox_audit_pk" PRIMARY KEY (audit_no)
);
