-- A shipment, with the message that caused it.
INSERT INTO {shipments} (message, address) VALUES ($1, $2)
