-- What a worker does in each round, in one transaction: it settles like outbox_settle and then claims like outbox_claim.
-- Rows of the first begin with false, those of the second with true; columns that one does not have are empty.
-- Parameters: the argument of outbox_settle, that of outbox_claim
SELECT false, s.seq, s.id, s.topic, s.status, s.expected, s.completed, s.failed,
       0::bigint, '', '', '', ''::bytea, NULL::text, NULL::text, NULL::text, 0::bigint, NULL::bigint, 0, NULL::int, 0::bigint
FROM "public"."outbox_settle"($1::json) AS s
UNION ALL
SELECT true, 0, '', NULL, NULL, NULL, NULL, NULL,
       c.seq, c.message_id, c.uuid, c.topic, c.payload, c.headers, c.correlation_id, c.stream_key, c.created_ms, c.due_ms, c.retry_count, c.stages, c.claimed_ms
FROM "public"."outbox_claim"($2::json) AS c
