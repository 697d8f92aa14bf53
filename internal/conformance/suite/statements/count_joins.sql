SELECT (SELECT COUNT(*) FROM {join}) + (SELECT COUNT(*) FROM {member});
