-- Bare publishing: one row.
INSERT INTO {{.Outbox}} (MessageId, Uuid, Topic, Payload) VALUES (@p1, @p2, @p3, @p4);
