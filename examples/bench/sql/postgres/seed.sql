-- Fills the table: the messages $1 to $1 + $2 - 1, spread over $3 topics. Every hundredth is due in an hour if $4 is true.
-- $5 is their payload. Ids grow as those of publishers do.
INSERT INTO {{.Outbox}} (message_id, uuid, topic, payload, next_attempt_at)
SELECT ('01990000-0000-7000-8000-' || lpad(to_hex(m.n), 12, '0'))::uuid, m.n::text, 'bench-' || (m.n % $3::bigint),
       $5::bytea,
       CASE WHEN $4::boolean AND m.n / $3::bigint % 100 = 99 THEN now() + interval '1 hour' ELSE now() END
FROM generate_series($1::bigint, $1::bigint + $2::bigint - 1) AS m (n)
ORDER BY m.n;
