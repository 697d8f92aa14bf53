SELECT relname || ' ' || coalesce(reloptions::text, '')
FROM pg_class
WHERE relnamespace = '{schema}'::regnamespace
ORDER BY 1;
