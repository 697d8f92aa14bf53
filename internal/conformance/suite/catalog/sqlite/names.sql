SELECT name FROM sqlite_master WHERE type = '{kind}' AND name NOT LIKE 'sqlite_%';
