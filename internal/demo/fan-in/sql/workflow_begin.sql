-- A workflow has begun.
INSERT INTO {workflows} (name) VALUES ($1)
