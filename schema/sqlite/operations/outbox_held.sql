-- The messages that a claim still holds. A worker asks when it lost the answer to that claim.
SELECT i.value
FROM "main"."outbox_lease" AS l CROSS JOIN json_tree(l.seqs) AS i
WHERE i.type = 'integer' AND l.owner_token = ?1 ->> '$.owner'
  AND (SELECT s.owner_token FROM "main"."outbox_state" AS s WHERE s.seq = i.value) = l.owner_token;
