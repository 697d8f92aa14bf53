-- Checks before it creates, because creating needs a right that the owner of an existing schema may not have.
DO $outbox$
BEGIN
    IF to_regnamespace('"public"') IS NULL THEN
        CREATE SCHEMA "public";
    END IF;
END
$outbox$;
