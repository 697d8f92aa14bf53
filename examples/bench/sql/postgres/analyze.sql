-- Tells the planner what the table holds now, before autovacuum does so in the middle of a run.
VACUUM (ANALYZE) {{.Outbox}};
