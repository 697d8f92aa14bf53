-- Empties the table, and its indexes with it.
TRUNCATE {{.Outbox}};
