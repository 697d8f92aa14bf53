-- Empties the tables, and their indexes with them.
DELETE FROM {{.Event}};
DELETE FROM {{.EventStream}};
DELETE FROM {{.LogPending}};
DELETE FROM {{.State}};
DELETE FROM {{.Lease}};
DELETE FROM {{.Attempt}};
DELETE FROM {{.Outbox}};
DELETE FROM {{.JoinMember}};
DELETE FROM {{.JoinSize}};
DELETE FROM {{.JoinWait}};
DELETE FROM {{.Join}};
DELETE FROM {{.Queue}};
DELETE FROM {{.Stream}};
