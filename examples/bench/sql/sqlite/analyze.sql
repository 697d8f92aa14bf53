-- Tells the planner what the tables hold now.
ANALYZE {{.Outbox}};
ANALYZE {{.State}};
ANALYZE {{.Join}};
ANALYZE {{.JoinMember}};
ANALYZE {{.Stream}};
ANALYZE {{.Queue}};
