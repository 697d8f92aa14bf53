SELECT indexdef FROM pg_indexes WHERE schemaname = '{schema}' ORDER BY 1;
