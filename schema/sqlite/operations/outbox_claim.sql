-- Takes up to limit ready messages of the listed topics under a lease, and first gives back a bounded number of
-- expired leases, which counts an attempt; a row with seq 0 tells their number in retry_count. Each of those is due again
-- after a random time up to its wait, so that one that ends its process does not take the same others with it each time.
-- Topics are tried in the order given, each up to its quota, until the next message does not fit in what is left of bytes,
-- payload and headers; with first, the very first may be larger.
-- from_ms of a topic is passed over: there are no dead entries here that it would spare.
-- A LIMIT cannot differ by topic here, so each topic is read up to the limit, and the quota is applied to what is read. The limit
-- is a subquery of its own, so that the argument is not read again for each topic. So is the size, so that no payload is
-- copied into a sort.
-- Nothing is inserted: each row that is chosen is there, and an upsert finds it by its key. UPDATE ... WHERE seq IN (...)
-- scans the table where statistics say that it is almost empty.
SELECT EXISTS (SELECT 1 FROM json_each(?1, '$.topics') AS t
               WHERE EXISTS (SELECT 1 FROM "main"."outbox" AS o INDEXED BY "outbox_ready"
                             WHERE o.status = 0 AND o.topic = t.value ->> '$.topic'
                               AND o.next_attempt_at <= CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)))
    OR (?1 ->> '$.give_back' > 0
        AND EXISTS (SELECT 1 FROM "main"."outbox" AS o INDEXED BY "outbox_leased"
                    WHERE o.status = 1 AND o.locked_until < CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)));

INSERT INTO "main"."outbox" (seq, message_id, uuid, topic, payload, created_at, next_attempt_at)
SELECT o.seq, '', '', '', x'', 0, CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) + (random() & 1048575)
       * (?1 ->> ('$.waits[' || min(o.retry_count, json_array_length(?1, '$.waits') - 1) || ']')) / 1048576
FROM "main"."outbox" AS o INDEXED BY "outbox_leased"
WHERE o.status = 1 AND o.locked_until < CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
ORDER BY o.locked_until
LIMIT (?1 ->> '$.give_back')
ON CONFLICT (seq) DO UPDATE
SET status = 0, owner_token = NULL, locked_until = NULL, retry_count = retry_count + 1, next_attempt_at = excluded.next_attempt_at,
    last_error = 'the lease expired: the worker stopped or did not renew it in time';

SELECT 0, '00000000-0000-0000-0000-000000000000', '', '', x'', NULL, NULL, NULL, 0, NULL, changes() WHERE changes() > 0;

INSERT INTO "main"."outbox" (seq, message_id, uuid, topic, payload, created_at, next_attempt_at, status, owner_token, locked_until)
SELECT summed.seq, '', '', '', x'', 0, 0, 1, (SELECT ?1 ->> '$.owner'), (SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) + (?1 ->> '$.lease_ms'))
FROM (SELECT chosen.seq, row_number() OVER (ORDER BY chosen.turn, chosen.place) AS place,
             sum(chosen.size) OVER (ORDER BY chosen.turn, chosen.place ROWS UNBOUNDED PRECEDING) AS total
      FROM (SELECT r.value AS seq, t.key AS turn, r.key AS place,
                   (SELECT length(o.payload) + coalesce(octet_length(o.headers), 0) FROM "main"."outbox" AS o WHERE o.seq = r.value) AS size
            FROM json_each(?1, '$.topics') AS t,
                 json_each((SELECT json_group_array(d.seq)
                            FROM (SELECT o.seq FROM "main"."outbox" AS o INDEXED BY "outbox_ready"
                                  WHERE o.status = 0 AND o.topic = t.value ->> '$.topic'
                                    AND o.next_attempt_at <= (SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER))
                                  ORDER BY o.next_attempt_at, o.seq
                                  LIMIT (SELECT ?1 ->> '$.limit')) AS d)) AS r
            WHERE r.key < t.value ->> '$.quota'
            ORDER BY t.key, r.key
            LIMIT (?1 ->> '$.limit')) AS chosen) AS summed
WHERE summed.total <= (SELECT coalesce(?1 ->> '$.bytes', 9223372036854775807))
   OR summed.place = 1 AND (SELECT coalesce(?1 ->> '$.first', 1))
ON CONFLICT (seq) DO UPDATE SET status = 1, owner_token = excluded.owner_token, locked_until = excluded.locked_until
RETURNING seq, message_id, uuid, topic, payload, headers, correlation_id, stream_key, created_at, due_at, retry_count;
