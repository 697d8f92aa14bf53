-- Empties the tables, and their indexes with them. One that others refer to cannot be truncated.
TRUNCATE TABLE {{.Event}};
TRUNCATE TABLE {{.EventStream}};
TRUNCATE TABLE {{.LogPending}};
TRUNCATE TABLE {{.State}};
TRUNCATE TABLE {{.Lease}};
TRUNCATE TABLE {{.Attempt}};
TRUNCATE TABLE {{.Outbox}};
TRUNCATE TABLE {{.JoinMember}};
TRUNCATE TABLE {{.JoinSize}};
TRUNCATE TABLE {{.JoinWait}};
DELETE FROM {{.Join}};
TRUNCATE TABLE {{.Stream}};
TRUNCATE TABLE {{.Queue}};
TRUNCATE TABLE {{.Arrival}};
