SELECT COUNT(*) FROM sqlite_master WHERE name = '{table}';
