-- Marks held messages as done. For callers in SQL: ids is a JSON array of seq. Returns the ids that are not held with the
-- token, which it ignores.
CREATE OR REPLACE FUNCTION "public"."outbox_ack"(owner uuid, ids json) RETURNS SETOF bigint
LANGUAGE sql AS $outbox$
    SELECT r.seq FROM "public"."outbox_settle"(json_build_object(
        'worker', session_user, 'backoff_ms', 1000, 'backoff_max_ms', 60000, 'delete_acked', false,
        'groups', json_build_array(json_build_object('outcome', 0, 'owner', owner, 'seqs', ids)))) AS r;
$outbox$;
