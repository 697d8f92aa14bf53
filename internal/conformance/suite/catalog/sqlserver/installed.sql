SELECT COUNT(OBJECT_ID(N'{qualified}'));
