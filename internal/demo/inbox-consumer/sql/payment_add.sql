-- A payment, with the message that caused it.
INSERT INTO {payments} (message, amount) VALUES ($1, $2)
