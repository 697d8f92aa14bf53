package stages_test

const workerVariable = "OUTBOX_TEST_STAGES_WORKER"

type workerJob struct{}

func (workerJob) run() error { return nil }
