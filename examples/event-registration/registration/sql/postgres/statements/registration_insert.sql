-- Adds a registration: all columns.
-- The primary key keeps a user from being there twice.
INSERT INTO registration (event_id, user_id, status, number, created_at, updated_at, offer_until)
VALUES ($1, $2, $3, $4, $5, $6, $7);
