-- What is in the queue of a topic, in its order.
SELECT uuid FROM outbox WHERE topic = ? ORDER BY seq
