-- Parameter: the number of the effect, written by fmt.
INSERT INTO {effects} (id) VALUES (%d);
