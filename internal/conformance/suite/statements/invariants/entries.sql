-- Each query counts the entries of an inbox that break the sentence above it.

-- an entry has been seen
SELECT COUNT(*) FROM {entry} e WHERE {seen} < 1;

-- nothing is seen last before it is seen first
SELECT COUNT(*) FROM {entry} e WHERE {last_seen_at} < {first_seen_at};

-- what has no message in the queue was processed
SELECT COUNT(*) FROM {entry} e WHERE {queue_id} IS NULL AND {processed_at} IS NULL;

-- a key has one entry
SELECT COUNT(*) FROM {entry} e
WHERE EXISTS (SELECT 1 FROM {entry} o WHERE o.{seq} <> e.{seq} AND o.{source} = e.{source} AND o.{handler} = e.{handler} AND o.{message_id} = e.{message_id});
