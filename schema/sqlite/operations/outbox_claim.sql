-- Takes up to limit ready messages of the listed topics under a lease, and first gives back a bounded number of
-- expired leases, which counts an attempt; a row with seq 0 tells their number in retry_count. Each of those is due again
-- after a random time up to its wait, so that one that ends its process does not take the same others with it each time.
-- Topics are tried in the order given, each up to its quota, until the next message does not fit in what is left of bytes,
-- payload and headers; with first, the very first may be larger.
-- A LIMIT cannot differ by topic here, so each topic is read up to the limit and the quota is applied by rank. The limit
-- is a subquery of its own, so that the argument is not read again for each topic. So is the size: a window function has
-- all columns beside it sorted, and that would copy the payload of each candidate.
SELECT EXISTS (SELECT 1 FROM json_each(?1, '$.topics') AS t
               WHERE EXISTS (SELECT 1 FROM "main"."outbox" AS o
                             WHERE o.status = 0 AND o.topic = t.value ->> '$.topic'
                               AND o.next_attempt_at <= CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)))
    OR (?1 ->> '$.give_back' > 0
        AND EXISTS (SELECT 1 FROM "main"."outbox" AS o
                    WHERE o.status = 1 AND o.locked_until < CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)));

UPDATE "main"."outbox"
SET status = 0, owner_token = NULL, locked_until = NULL, retry_count = retry_count + 1,
    next_attempt_at = CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) + (random() & 1048575)
        * (?1 ->> ('$.waits[' || min(retry_count, json_array_length(?1, '$.waits') - 1) || ']')) / 1048576,
    last_error = 'the lease expired: the worker stopped or did not renew it in time'
WHERE seq IN (SELECT o.seq FROM "main"."outbox" AS o
              WHERE o.status = 1 AND o.locked_until < CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
              ORDER BY o.locked_until
              LIMIT (?1 ->> '$.give_back'));

SELECT 0, '00000000-0000-0000-0000-000000000000', '', '', x'', NULL, NULL, NULL, 0, NULL, changes() WHERE changes() > 0;

UPDATE "main"."outbox"
SET status = 1, owner_token = ?1 ->> '$.owner',
    locked_until = CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) + (?1 ->> '$.lease_ms')
WHERE seq IN (
    SELECT summed.seq
    FROM (SELECT chosen.seq, row_number() OVER (ORDER BY chosen.turn, chosen.place) AS place,
                 sum(chosen.size) OVER (ORDER BY chosen.turn, chosen.place ROWS UNBOUNDED PRECEDING) AS total
          FROM (SELECT ranked.seq, ranked.turn, ranked.place,
                       (SELECT length(o.payload) + coalesce(octet_length(o.headers), 0)
                        FROM "main"."outbox" AS o WHERE o.seq = ranked.seq) AS size
                FROM (SELECT o.seq, t.key AS turn, t.value ->> '$.quota' AS quota,
                             row_number() OVER (PARTITION BY t.key ORDER BY o.next_attempt_at, o.seq) AS place
                      FROM json_each(?1, '$.topics') AS t
                      CROSS JOIN "main"."outbox" AS o ON o.seq IN (
                          SELECT r.seq FROM "main"."outbox" AS r
                          WHERE r.status = 0 AND r.topic = t.value ->> '$.topic'
                            AND r.next_attempt_at <= (SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER))
                          ORDER BY r.next_attempt_at, r.seq
                          LIMIT (SELECT ?1 ->> '$.limit'))) AS ranked
                WHERE ranked.place <= ranked.quota
                ORDER BY ranked.turn, ranked.place
                LIMIT (?1 ->> '$.limit')) AS chosen) AS summed
    WHERE summed.total <= (SELECT coalesce(?1 ->> '$.bytes', 9223372036854775807))
       OR summed.place = 1 AND (SELECT coalesce(?1 ->> '$.first', 1)))
RETURNING seq, message_id, uuid, topic, payload, headers, correlation_id, stream_key, created_at, due_at, retry_count;
