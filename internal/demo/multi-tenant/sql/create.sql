-- What the handlers of a tenant have seen, in its own database: the application's part of it.
CREATE TABLE shipped (
    name   TEXT NOT NULL,
    tenant TEXT NOT NULL
);
