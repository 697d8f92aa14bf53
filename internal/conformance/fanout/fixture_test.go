package fanout_test

// loggedUUIDs are the UUIDs of the log, in its order.
func (f *fixture) loggedUUIDs() []string {
	f.T.Helper()
	uuids, err := f.Strings(f.DB, f.SQL("SELECT o.{uuid} FROM %s l JOIN {outbox} o ON o.{message_id} = l.{message_id} ORDER BY l.{position}", f.LogTable("")))
	f.NoError(err)
	return uuids
}
