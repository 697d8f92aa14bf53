-- Each query counts the messages that break the sentence above it.

-- the status is one of five
SELECT COUNT(*) FROM {all} WHERE {status} NOT IN (0, 1, 2, 3, 4);

-- no message is both held and ended
SELECT COUNT(*) FROM {all}
WHERE {status} >= 2 AND ({owner_token} IS NOT NULL OR {locked_until} IS NOT NULL);

-- no lease without an owner
SELECT COUNT(*) FROM {all} WHERE {locked_until} IS NOT NULL AND {owner_token} IS NULL;

-- no owner without a lease
SELECT COUNT(*) FROM {all} WHERE {owner_token} IS NOT NULL AND {locked_until} IS NULL;

-- exactly what is in progress is held
SELECT COUNT(*) FROM {all}
WHERE ({status} = 1 AND {owner_token} IS NULL) OR ({status} <> 1 AND {owner_token} IS NOT NULL);

-- exactly what has ended has an end
SELECT COUNT(*) FROM {all}
WHERE ({status} >= 2 AND {processed_at} IS NULL) OR ({status} < 2 AND {processed_at} IS NOT NULL);

-- exactly what has ended says who ended it
SELECT COUNT(*) FROM {all}
WHERE ({status} >= 2 AND {processed_by} IS NULL) OR ({status} < 2 AND {processed_by} IS NOT NULL);

-- attempts are never negative
SELECT COUNT(*) FROM {all} WHERE {retry_count} < 0;
