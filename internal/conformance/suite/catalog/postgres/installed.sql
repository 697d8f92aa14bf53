SELECT COUNT(to_regclass('{qualified}'));
