-- Fills the tables of joins: the messages 0 to $1 - 1 are steps, $2 a join.
WITH flagged AS (
    UPDATE {{.State}} SET flags = 1),
joins AS (
    INSERT INTO {{.Join}} (join_id, expected_steps)
    SELECT ('01990000-0000-7000-9000-' || lpad(to_hex(j.n), 12, '0'))::uuid, least($2::bigint, $1::bigint - j.n * $2::bigint)
    FROM generate_series(0, ($1::bigint - 1) / $2::bigint) AS j (n)
    RETURNING join_id, expected_steps),
sizes AS (
    INSERT INTO {{.JoinSize}} (join_id, attached) SELECT join_id, expected_steps FROM joins)
INSERT INTO {{.JoinMember}} (join_id, message_id)
SELECT ('01990000-0000-7000-9000-' || lpad(to_hex(m.n / $2::bigint), 12, '0'))::uuid,
       ('01990000-0000-7000-8000-' || lpad(to_hex(m.n), 12, '0'))::uuid
FROM generate_series(0, $1::bigint - 1) AS m (n);
