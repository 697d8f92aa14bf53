SELECT table_name || ' ' || ordinal_position || ' ' || column_name || ' ' || data_type || ' ' || is_nullable
    || ' ' || coalesce(column_default, '') || ' ' || is_identity || ' ' || coalesce(collation_name, '')
FROM information_schema.columns
WHERE table_schema = '{schema}'
ORDER BY 1;
