-- Empties the table, and its indexes with it.
DELETE FROM {{.Outbox}};
