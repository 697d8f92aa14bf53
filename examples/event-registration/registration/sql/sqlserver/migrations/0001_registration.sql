-- The tables of the registration service. It can be run again: nothing that is there is changed.
-- Times are milliseconds since 1970, so that one Go code reads them from every database.
SET XACT_ABORT ON;
BEGIN TRANSACTION;
EXEC sp_getapplock @Resource = N'registration', @LockMode = 'Exclusive', @LockOwner = 'Transaction'; -- replicas that start at once migrate one after the other

-- One row an event: what the catalog says of it, and the counters. Every writer locks it first.
IF OBJECT_ID(N'registration_event') IS NULL
BEGIN
CREATE TABLE registration_event (
    event_id       NVARCHAR(64) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
    version        BIGINT NOT NULL,
    title          NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    organizer_id   NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    status         NVARCHAR(16) COLLATE Latin1_General_100_BIN2 NOT NULL,
    capacity       INT NOT NULL CHECK (capacity >= 0),
    waitlist_limit INT NOT NULL CHECK (waitlist_limit >= -1),
    active_count   INT NOT NULL CHECK (active_count >= 0),
    waitlist_count INT NOT NULL CHECK (waitlist_count >= 0),
    last_number    BIGINT NOT NULL,
    revision       BIGINT NOT NULL
);
END;

-- One row a user and event. number is given out under the event's lock, so its order is that of the commits.
IF OBJECT_ID(N'registration') IS NULL
BEGIN
CREATE TABLE registration (
    event_id     NVARCHAR(64) COLLATE Latin1_General_100_BIN2 NOT NULL,
    user_id      NVARCHAR(64) COLLATE Latin1_General_100_BIN2 NOT NULL,
    status       NVARCHAR(16) COLLATE Latin1_General_100_BIN2 NOT NULL,
    number       BIGINT NOT NULL,
    created_at   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    offer_until  BIGINT NOT NULL,
    PRIMARY KEY (event_id, user_id)
);
-- Both cover what is read by them: a reader that went on to the table could deadlock with a writer, which goes the other way.
CREATE INDEX registration_by_number ON registration (event_id, status, number) INCLUDE (user_id, created_at, updated_at, offer_until);
CREATE INDEX registration_by_user ON registration (user_id, created_at, event_id) INCLUDE (status, number, updated_at, offer_until);
END;

-- Who may not join an event; expires_at 0 is for ever.
IF OBJECT_ID(N'registration_ban') IS NULL
BEGIN
CREATE TABLE registration_ban (
    event_id   NVARCHAR(64) COLLATE Latin1_General_100_BIN2 NOT NULL,
    user_id    NVARCHAR(64) COLLATE Latin1_General_100_BIN2 NOT NULL,
    reason     NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    banned_by  NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (event_id, user_id)
);
END;

-- A response by the key of its request, written in the transaction of the request's effect.
IF OBJECT_ID(N'registration_key') IS NULL
BEGIN
CREATE TABLE registration_key (
    user_id    NVARCHAR(64) COLLATE Latin1_General_100_BIN2 NOT NULL,
    route      NVARCHAR(32) COLLATE Latin1_General_100_BIN2 NOT NULL,
    request    NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    hash       NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    status     INT NOT NULL,
    headers    NVARCHAR(MAX) NOT NULL,
    body       VARBINARY(MAX) NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (user_id, route, request)
);
CREATE INDEX registration_key_by_expiry ON registration_key (expires_at);
END;
COMMIT;
