-- Adds a registration: all columns.
-- The primary key keeps a user from being there twice.
INSERT INTO registration (event_id, user_id, status, number, created_at, updated_at, offer_until)
VALUES (@p1, @p2, @p3, @p4, @p5, @p6, @p7);
