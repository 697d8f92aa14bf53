SELECT COUNT(*) FROM {effects};
