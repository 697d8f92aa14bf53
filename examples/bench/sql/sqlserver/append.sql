-- Bare appending: one event, at the next version of its stream.
SET XACT_ABORT ON;
DECLARE @Moved TABLE (StreamNo BIGINT NOT NULL, Version BIGINT NOT NULL);
BEGIN TRANSACTION;
UPDATE {{.EventStream}} SET Version = Version + 1 OUTPUT inserted.StreamNo, inserted.Version INTO @Moved WHERE Name = @p6;
IF @@ROWCOUNT = 0
    INSERT INTO {{.EventStream}} (Name, Version) OUTPUT inserted.StreamNo, inserted.Version INTO @Moved VALUES (@p6, 1);
INSERT INTO {{.Outbox}} (MessageId, Uuid, Topic, Payload, TopicKey)
OUTPUT inserted.Seq, inserted.MessageId, inserted.Topic INTO {{.LogPending}} (Seq, MessageId, Topic)
VALUES (@p1, @p2, @p3, @p4, @p5);
INSERT INTO {{.Event}} (StreamNo, Version, Seq, Size) SELECT StreamNo, Version, CAST(SCOPE_IDENTITY() AS BIGINT), DATALENGTH(@p4) FROM @Moved;
COMMIT TRANSACTION;
