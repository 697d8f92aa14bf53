-- Bare publishing: one message.
INSERT INTO {{.Outbox}} (MessageId, Uuid, Topic, Payload, TopicKey)
OUTPUT inserted.Seq, inserted.TopicKey, SYSUTCDATETIME() INTO {{.State}} (Seq, TopicKey, NextAttemptAt)
VALUES (@p1, @p2, @p3, @p4, @p5);
