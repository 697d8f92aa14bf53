-- The application's own rows: what its handlers have done. No unique key would refuse to do it twice.
CREATE TABLE {payments} (
    message NVARCHAR(50) NOT NULL,
    amount  NVARCHAR(50) NOT NULL
);
CREATE TABLE {shipments} (
    message NVARCHAR(50) NOT NULL,
    address NVARCHAR(50) NOT NULL
);
