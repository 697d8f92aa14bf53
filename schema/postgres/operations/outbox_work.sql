-- What a worker does in each round, in one transaction: it settles like outbox_settle, renews like outbox_renew, if anything is to
-- be renewed, and then claims like outbox_claim. The first column says which of these, 0 to 2, a row comes from; columns that
-- one does not have are empty.
-- Parameters: the argument of outbox_settle, that of outbox_renew or NULL, that of outbox_claim
SELECT 0, s.seq, s.id, s.topic, s.status, s.expected, s.completed, s.failed,
       0::bigint, '', '', '', ''::bytea, NULL::text, NULL::text, NULL::text, 0::bigint, NULL::bigint, 0, NULL::int, 0::bigint
FROM "public"."outbox_settle"($1::json) AS s
UNION ALL
SELECT 1, r.seq, r.owner_token, NULL, r.held::int, NULL, NULL, NULL,
       0, '', '', '', '', NULL, NULL, NULL, 0, NULL, 0, NULL, 0
FROM "public"."outbox_renew"($2::json) AS r
WHERE $2::json IS NOT NULL
UNION ALL
SELECT 2, 0, '', NULL, NULL, NULL, NULL, NULL,
       c.seq, c.message_id, c.uuid, c.topic, c.payload, c.headers, c.correlation_id, c.stream_key, c.created_ms, c.due_ms, c.retry_count, c.stages, c.claimed_ms
FROM "public"."outbox_claim"($3::json) AS c
