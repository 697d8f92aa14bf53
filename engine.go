package outbox

import "github.com/incursa/watermill-outbox/internal/engine"

// An operation is the name of a file in the dialect's operations folder, without its extension. Package engine runs it.
type operation = engine.Operation

const (
	opEnqueue    operation = "outbox_enqueue"
	opEnqueueOne operation = "outbox_enqueue_one"
	opWork       operation = "outbox_work"
	opClaim      operation = "outbox_claim"
	opSettle     operation = "outbox_settle"
	opHeld       operation = "outbox_held"
	opRenew      operation = "outbox_renew"
	opReap       operation = "outbox_reap"
	opRequeue    operation = "outbox_requeue"
	opPurge      operation = "outbox_purge"
	opTopics     operation = "outbox_topics"
	opFailed     operation = "outbox_failed"
	opGet        operation = "outbox_get"
	opHealth     operation = "outbox_health"

	opTopicPaused operation = "outbox_topic_paused"
	opAuditPurge  operation = "outbox_audit_purge"
	opWorkerBeat  operation = "outbox_worker_beat"
	opWorkerPurge operation = "outbox_worker_purge"

	opStreamEnqueue operation = "outbox_stream_enqueue"
	opStreamList    operation = "outbox_stream_list"
	opStreamResume  operation = "outbox_stream_resume"
	opStreamTake    operation = "outbox_stream_take"
	opStreamTopics  operation = "outbox_stream_topics"

	opJoinPurge  operation = "outbox_join_purge"
	opEntryPurge operation = "outbox_entry_purge"

	opLogEnqueue operation = "outbox_log_enqueue"
	opLogStamp   operation = "outbox_log_stamp"
	opLogLease   operation = "outbox_log_lease"
	opLogRead    operation = "outbox_log_read"
	opLogPurge   operation = "outbox_log_purge"
	opLogForget  operation = "outbox_log_forget"
	opLogSkip    operation = "outbox_log_skip"

	opEventAppend    operation = "outbox_event_append"
	opEventAppendOne operation = "outbox_event_append_one"

	opLogDeadAdd     operation = "outbox_log_dead_add"
	opLogDeadList    operation = "outbox_log_dead_list"
	opLogDeadRequeue operation = "outbox_log_dead_requeue"
	opLogDeadDiscard operation = "outbox_log_dead_discard"
)

// readOnly are the operations that commit nothing.
var readOnly = map[operation]bool{
	opHeld: true, opTopics: true, opFailed: true, opGet: true, opLogRead: true, opLogDeadList: true, opStreamList: true, opStreamTopics: true,
	opTopicPaused: true, "outbox_audit_list": true,
	"outbox_event_read": true, "outbox_event_read_all": true, "outbox_event_wait": true,
	"outbox_join_list": true, "outbox_join_members": true, "outbox_join_of": true, "outbox_entry_get": true,
	"outbox_dead_scan": true, "outbox_list": true, "outbox_story": true, "outbox_health": true, "outbox_leases": true, "outbox_worker_list": true, "outbox_log_groups": true,
}
