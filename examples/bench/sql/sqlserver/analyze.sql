-- Tells the planner what the tables hold now.
UPDATE STATISTICS {{.Outbox}};
UPDATE STATISTICS {{.State}};
UPDATE STATISTICS {{.Join}};
UPDATE STATISTICS {{.JoinMember}};
