-- Fills the tables: the messages $1 to $1 + $2 - 1, spread over $3 topics, whose keys are $6. Every hundredth is due in an hour
-- if $4 is true. $5 is their payload. Ids grow as those of publishers do, and a message is due since it was created.
WITH added AS (
    INSERT INTO {{.Outbox}} (message_id, uuid, topic, topic_key, payload, created_at, due_at)
    SELECT ('01990000-0000-7000-8000-' || lpad(to_hex(m.n), 12, '0'))::uuid, m.n::text, 'bench-' || (m.n % $3::bigint),
           ($6::bigint[])[m.n % $3::bigint + 1], $5::bytea, now(),
           CASE WHEN $4::boolean AND m.n / $3::bigint % 100 = 99 THEN now() + interval '1 hour' END
    FROM generate_series($1::bigint, $1::bigint + $2::bigint - 1) AS m (n)
    ORDER BY m.n
    RETURNING seq, topic_key, due_at)
INSERT INTO {{.State}} (seq, topic_key, next_attempt_at, size)
SELECT seq, topic_key, coalesce(due_at, now()), octet_length($5::bytea) FROM added;
