-- The orders that were placed.
SELECT name FROM {orders}
