-- Fails where the names of table variables have case.
DECLARE @Mixed TABLE (N INT);
INSERT INTO @Mixed (N) VALUES (1)
