-- Tells the planner what the tables hold now.
UPDATE STATISTICS {{.Outbox}};
UPDATE STATISTICS {{.State}};
UPDATE STATISTICS {{.Join}};
UPDATE STATISTICS {{.JoinMember}};
UPDATE STATISTICS {{.Stream}};
UPDATE STATISTICS {{.Queue}};
