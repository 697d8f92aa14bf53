-- A role with only the rights that a worker or a publisher needs; it owns nothing and cannot change the schema. Add your
-- users to it: GRANT … TO "user";
DO $outbox$
BEGIN
    IF to_regrole('"public_outbox_role"') IS NULL THEN
        CREATE ROLE "public_outbox_role" NOLOGIN;
    END IF;
END
$outbox$;
GRANT USAGE ON SCHEMA "public" TO "public_outbox_role";
GRANT SELECT, INSERT, UPDATE, DELETE
ON "public"."outbox", "public"."outbox_state", "public"."outbox_lease", "public"."outbox_attempt", "public"."outbox_worker",
   "public"."outbox_arrival", "public"."outbox_router", "public"."outbox_stream", "public"."outbox_queue",
   "public"."outbox_log", "public"."outbox_log_pending", "public"."outbox_log_counter", "public"."outbox_log_group",
   "public"."outbox_log_dead", "public"."outbox_event", "public"."outbox_event_stream", "public"."outbox_event_swept",
   "public"."outbox_paused", "public"."outbox_audit" TO "public_outbox_role";
GRANT SELECT ON "public"."outbox_view", "public"."outbox_kept", "public"."outbox_migrations" TO "public_outbox_role";
DO $outbox$
BEGIN
    IF to_regclass('"public"."outbox_join"') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE
        ON "public"."outbox_join", "public"."outbox_join_member", "public"."outbox_join_size", "public"."outbox_join_wait" TO "public_outbox_role";
    END IF;
    IF to_regclass('"public"."outbox_entry"') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON "public"."outbox_entry" TO "public_outbox_role";
        GRANT SELECT ON "public"."outbox_entry_view" TO "public_outbox_role";
    END IF;
END
$outbox$;
REVOKE ALL ON FUNCTION "public"."outbox_claim"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_claim"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_settle"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_settle"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_stage_save"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_stage_save"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_renew"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_renew"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_reap"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_reap"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_give_back"(int, bigint[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_give_back"(int, bigint[]) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_worker_number"(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_worker_number"(text) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_stream_route"(int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_stream_route"(int) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_stream_claim"(uuid, bigint[], int, int[], int, bigint, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_stream_claim"(uuid, bigint[], int, int[], int, bigint, boolean) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_stream_lock"(bigint[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_stream_lock"(bigint[]) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_stream_free"(bigint[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_stream_free"(bigint[]) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_stream_list"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_stream_list"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_stream_resume"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_stream_resume"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_stream_take"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_stream_take"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_stream_topics"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_stream_topics"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_requeue"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_requeue"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_purge"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_purge"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_topics"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_topics"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_failed"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_failed"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_get"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_get"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_dead_scan"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_dead_scan"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_list"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_list"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_story"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_story"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_join_of"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_join_of"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_health"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_health"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_leases"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_leases"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_log_groups"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_log_groups"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_end"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_end"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_delay"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_delay"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_topic_pause"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_topic_pause"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_topic_resume"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_topic_resume"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_topic_paused"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_topic_paused"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_audit_add"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_audit_add"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_audit_list"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_audit_list"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_audit_purge"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_audit_purge"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_workers"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_workers"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_join_start"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_join_start"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_join_attach"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_join_attach"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_join_report"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_join_report"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_join_seal"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_join_seal"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_join_cancel"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_join_cancel"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_join_wait"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_join_wait"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_join_list"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_join_list"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_join_members"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_join_members"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_join_purge"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_join_purge"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_join_count"(uuid[], uuid[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_join_count"(uuid[], uuid[]) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_join_advance"(uuid[], int[], int[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_join_advance"(uuid[], int[], int[]) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_entry_add"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_entry_add"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_entry_get"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_entry_get"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_entry_save"(json, bytea) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_entry_save"(json, bytea) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_entry_purge"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_entry_purge"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_log_enqueue"(json, bytea) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_log_enqueue"(json, bytea) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_log_stamp"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_log_stamp"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_log_lease"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_log_lease"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_log_read"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_log_read"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_log_purge"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_log_purge"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_log_forget"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_log_forget"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_log_dead_add"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_log_dead_add"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_log_dead_list"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_log_dead_list"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_log_dead_requeue"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_log_dead_requeue"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_log_dead_discard"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_log_dead_discard"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_event_append"(json, bytea) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_event_append"(json, bytea) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_event_read"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_event_read"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_event_read_all"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_event_read_all"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_event_change"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_event_change"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_event_purge"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_event_purge"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_event_wait"(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_event_wait"(json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_ack"(uuid, json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_ack"(uuid, json) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_abandon"(uuid, json, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_abandon"(uuid, json, text) TO "public_outbox_role";
REVOKE ALL ON FUNCTION "public"."outbox_fail"(uuid, json, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION "public"."outbox_fail"(uuid, json, text) TO "public_outbox_role";
