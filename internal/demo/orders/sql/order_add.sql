-- An order.
INSERT INTO {orders} (name, topic) VALUES ($1, $2)
