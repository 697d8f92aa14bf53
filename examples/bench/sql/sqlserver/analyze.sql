-- Tells the planner what the table holds now.
UPDATE STATISTICS {{.Outbox}};
