-- Tells the planner what the tables hold now.
ANALYZE {{.Outbox}};
ANALYZE {{.Join}};
ANALYZE {{.JoinMember}};
