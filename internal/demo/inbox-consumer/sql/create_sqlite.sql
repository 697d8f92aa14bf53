-- The application's own rows: what its handlers have done. No unique key would refuse to do it twice.
CREATE TABLE {payments} (
    message TEXT NOT NULL,
    amount  TEXT NOT NULL
);
CREATE TABLE {shipments} (
    message TEXT NOT NULL,
    address TEXT NOT NULL
);
