-- What was shipped, and for whom.
INSERT INTO shipped (name, tenant) VALUES (?, ?)
