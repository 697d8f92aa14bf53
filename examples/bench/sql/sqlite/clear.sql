-- Empties the tables, and their indexes with them.
DELETE FROM {{.Outbox}};
DELETE FROM {{.JoinMember}};
DELETE FROM {{.JoinSize}};
DELETE FROM {{.JoinWait}};
DELETE FROM {{.Join}};
