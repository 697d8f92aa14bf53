-- Records what an operator has done, in the same transaction. The first batch of an act gets a number; the others pass it and
-- add to the count.
-- Called as: SELECT * FROM "public"."outbox_audit_add"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_audit_add"(arg json) RETURNS TABLE (no bigint)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off
AS $outbox$
BEGIN
    no := (arg->>'no')::bigint;
    IF no IS NULL THEN
        INSERT INTO "public"."outbox_audit" (actor, act, selection, affected)
        VALUES (arg->>'by', arg->>'act', arg->>'selection', (arg->>'affected')::int)
        RETURNING audit_no INTO no;
    ELSE
        UPDATE "public"."outbox_audit" AS a SET affected = a.affected + (arg->>'affected')::int WHERE a.audit_no = no;
    END IF;
    RETURN NEXT;
END
$outbox$;
