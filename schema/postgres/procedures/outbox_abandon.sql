-- Returns held messages for another attempt after the backoff. For callers in SQL: ids is a JSON array of seq. Returns the
-- ids that are not held with the token, which it ignores.
CREATE OR REPLACE FUNCTION "public"."outbox_abandon"(owner uuid, ids json, last_error text DEFAULT NULL) RETURNS SETOF bigint
LANGUAGE sql AS $outbox$
    SELECT r.seq FROM "public"."outbox_settle"(json_build_object(
        'worker', session_user, 'backoff_ms', 1000, 'backoff_max_ms', 60000, 'delete_acked', false,
        'groups', json_build_array(json_build_object('outcome', 1, 'owner', owner, 'seqs', ids, 'error', last_error)))) AS r;
$outbox$;
