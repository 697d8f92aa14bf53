-- An order.
INSERT INTO orders (number) VALUES (?)
