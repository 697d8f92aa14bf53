-- The orders of the shop.
CREATE TABLE orders (number INTEGER PRIMARY KEY)
