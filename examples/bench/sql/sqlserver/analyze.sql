-- Tells the planner what the tables hold now.
UPDATE STATISTICS {{.Outbox}};
UPDATE STATISTICS {{.Join}};
UPDATE STATISTICS {{.JoinMember}};
