SELECT viewname || ' ' || definition FROM pg_views WHERE schemaname = '{schema}' ORDER BY 1;
