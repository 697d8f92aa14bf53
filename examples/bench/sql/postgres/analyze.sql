-- Tells the planner what the tables hold now, before autovacuum does so in the middle of a run.
VACUUM (ANALYZE) {{.Outbox}}, {{.State}}, {{.Join}}, {{.JoinMember}}, {{.Stream}}, {{.Queue}};
