-- Each query counts the rows of joins that break the sentence above it.

-- the status of a join is one of four
SELECT COUNT(*) FROM {join} r WHERE {status} NOT IN (0, 1, 2, 3);

-- a join has the status of its verdict, pending only while there is none
SELECT COUNT(*) FROM {join} r WHERE {status} <> {verdict};

-- never more steps have ended than were expected
SELECT COUNT(*) FROM {join} r WHERE {completed_steps} + {failed_steps} > {expected_steps};

-- counters are never negative
SELECT COUNT(*) FROM {join} r WHERE {completed_steps} < 0 OR {failed_steps} < 0;

-- a pending join has counted its completed steps
SELECT COUNT(*) FROM {join} r
WHERE {status} = 0 AND {completed_steps}
      <> (SELECT COUNT(*) FROM {member} m WHERE m.{join_id} = r.{join_id} AND m.{status} = 1);

-- a pending join has counted its failed steps
SELECT COUNT(*) FROM {join} r
WHERE {status} = 0 AND {failed_steps}
      <> (SELECT COUNT(*) FROM {member} m WHERE m.{join_id} = r.{join_id} AND m.{status} = 2);

-- a join knows how many steps it has
SELECT COUNT(*) FROM {join} r
WHERE {status} = 0 AND (SELECT COUNT(*) FROM {member} m WHERE m.{join_id} = r.{join_id})
      <> (SELECT COALESCE(MAX(s.{attached}), -1) FROM {size} s WHERE s.{join_id} = r.{join_id});

-- no join has more steps than it expects
SELECT COUNT(*) FROM {join} r
WHERE (SELECT COUNT(*) FROM {member} m WHERE m.{join_id} = r.{join_id}) > {expected_steps};

-- the state of a step is one of three
SELECT COUNT(*) FROM {member} r WHERE {status} NOT IN (0, 1, 2);

-- no step is without its join
SELECT COUNT(*) FROM {member} r
WHERE NOT EXISTS (SELECT 1 FROM {join} j WHERE j.{join_id} = r.{join_id});

-- no wait is without its join
SELECT COUNT(*) FROM {wait} r
WHERE NOT EXISTS (SELECT 1 FROM {join} j WHERE j.{join_id} = r.{join_id});

-- no size is without its join
SELECT COUNT(*) FROM {size} r
WHERE NOT EXISTS (SELECT 1 FROM {join} j WHERE j.{join_id} = r.{join_id});

-- no step is pending whose message has ended
SELECT COUNT(*) FROM {member} r
WHERE {status} = 0 AND {ends_by} = 0
  AND EXISTS (SELECT 1 FROM {all} WHERE messages.{message_id} = r.{step} AND messages.{status} >= 2);
