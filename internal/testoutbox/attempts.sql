-- The most attempts that any message has spent.
SELECT COALESCE(MAX({retry_count}), 0) FROM {all}
