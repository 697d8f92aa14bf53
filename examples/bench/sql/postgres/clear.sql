-- Empties the tables, and their indexes with them.
TRUNCATE {{.Outbox}}, {{.Join}}, {{.JoinMember}}, {{.JoinSize}}, {{.JoinWait}};
