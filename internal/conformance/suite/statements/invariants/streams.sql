-- Each query counts the rows of streams that break the sentence above it.

-- what is ready in its stream is in a queue or arrives
SELECT COUNT(*) FROM {outbox_state} r
WHERE {status} = 5
  AND NOT EXISTS (SELECT 1 FROM {queued} q WHERE q.{seq} = r.{seq} AND q.{stream_id} = r.{stream_id})
  AND NOT EXISTS (SELECT 1 FROM {arrivals} a WHERE a.{seq} = r.{seq});

-- what is out of a stream is in its queue
SELECT COUNT(*) FROM {outbox_state} r
WHERE {status} = 1 AND r.{stream_id} IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM {queued} q WHERE q.{seq} = r.{seq} AND q.{stream_id} = r.{stream_id});

-- nothing is ready in a stream without one
SELECT COUNT(*) FROM {outbox_state} r
WHERE {status} = 0 AND r.{stream_id} IS NOT NULL OR {status} = 5 AND r.{stream_id} IS NULL;

-- nothing arrives that is queued
SELECT COUNT(*) FROM {arrivals} r
WHERE EXISTS (SELECT 1 FROM {queued} q WHERE q.{seq} = r.{seq} AND q.{stream_id} = r.{stream_id});

-- what is in a stream's row blocks nothing
SELECT COUNT(*) FROM {queued} r
WHERE r.alone = 1
  AND EXISTS (SELECT 1 FROM {outbox_stream} t WHERE t.{stream_id} = r.{stream_id} AND t.{status} = 2);

-- what is in a stream's row is all there is
SELECT COUNT(*) FROM {queued} r
WHERE r.alone = 1
  AND EXISTS (SELECT 1 FROM {outbox_queue} q WHERE q.{stream_id} = r.{stream_id});

-- a queue has a stream
SELECT COUNT(*) FROM {outbox_queue} r
WHERE NOT EXISTS (SELECT 1 FROM {outbox_stream} t WHERE t.{stream_id} = r.{stream_id});

-- streams without messages leave no rows
SELECT COUNT(*) FROM {outbox_stream} r
WHERE NOT EXISTS (SELECT 1 FROM {queued} q WHERE q.{stream_id} = r.{stream_id});

-- a stream of which a message is out is held
SELECT COUNT(*) FROM {outbox_stream} r
WHERE {status} <> 1
  AND EXISTS (SELECT 1 FROM {queued} q, {outbox_state} s WHERE q.{stream_id} = r.{stream_id} AND s.{seq} = q.{seq} AND s.{status} = 1);

-- a stream is held by one claim
SELECT COUNT(*) FROM {outbox_stream} r
WHERE EXISTS (SELECT 1 FROM {queued} q, {outbox_state} s WHERE q.{stream_id} = r.{stream_id} AND s.{seq} = q.{seq} AND s.{status} = 1 AND s.{owner_token} <> r.{owner_token});

-- what has blocked a stream has failed
SELECT COUNT(*) FROM {outbox_stream} r
WHERE {status} = 2
  AND NOT EXISTS (SELECT 1 FROM {queued} q, {outbox_state} s WHERE q.{stream_id} = r.{stream_id} AND s.{seq} = q.{seq} AND s.{status} = 3);

-- a stream that is held has a lease
SELECT COUNT(*) FROM {outbox_stream} r
WHERE {status} = 1
  AND NOT EXISTS (SELECT 1 FROM {outbox_lease} l WHERE l.{owner_token} = r.{owner_token});
