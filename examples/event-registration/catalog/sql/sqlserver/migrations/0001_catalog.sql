-- The catalog's events, and what it has been told of their participants: the counters of the highest revision.
-- It can be run again: nothing that is there is changed.
SET XACT_ABORT ON;
BEGIN TRANSACTION;
EXEC sp_getapplock @Resource = N'catalog', @LockMode = 'Exclusive', @LockOwner = 'Transaction'; -- replicas that start at once migrate one after the other
IF OBJECT_ID(N'catalog_event') IS NULL
CREATE TABLE catalog_event (
    event_id       NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
    version        BIGINT NOT NULL,
    title          NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    organizer_id   NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    status         NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    capacity       BIGINT NOT NULL,
    waitlist_limit BIGINT NOT NULL,
    active         BIGINT NOT NULL,
    waiting        BIGINT NOT NULL,
    revision       BIGINT NOT NULL
);
COMMIT;
