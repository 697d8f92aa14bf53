SELECT conname || ' ' || pg_get_constraintdef(oid)
FROM pg_constraint
WHERE connamespace = '{schema}'::regnamespace
ORDER BY 1;
