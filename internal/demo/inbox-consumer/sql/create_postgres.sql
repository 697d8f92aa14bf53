-- The application's own rows: what its handlers have done. No unique key would refuse to do it twice.
CREATE TABLE {payments} (
    message text NOT NULL,
    amount  text NOT NULL
);
CREATE TABLE {shipments} (
    message text NOT NULL,
    address text NOT NULL
);
