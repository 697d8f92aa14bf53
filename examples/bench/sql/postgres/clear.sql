-- Empties the tables, and their indexes with them.
TRUNCATE {{.Outbox}}, {{.State}}, {{.Lease}}, {{.Attempt}}, {{.Join}}, {{.JoinMember}}, {{.JoinSize}}, {{.JoinWait}},
    {{.Stream}}, {{.Queue}}, {{.Arrival}}, {{.Event}}, {{.EventStream}}, {{.LogPending}};
