-- Tells the planner what the table holds now.
ANALYZE {{.Outbox}};
