-- What became of a delivery, with the bytes that arrived.
INSERT INTO {handled} (name, message_id, worker, attempt, outcome, payload) VALUES ($1, $2, $3, $4, $5, $6)
