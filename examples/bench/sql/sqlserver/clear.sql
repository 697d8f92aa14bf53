-- Empties the table, and its indexes with it.
TRUNCATE TABLE {{.Outbox}};
