-- One call of a worker: acks what it took before ($1) and claims again ($2), with the product's own functions.
SELECT c.seq, c.uuid, c.payload
FROM (SELECT count(*) FROM {{.Settle}}($1::json)) AS settled
CROSS JOIN LATERAL (SELECT c.* FROM {{.Claim}}($2::json) AS c OFFSET 0) AS c;
