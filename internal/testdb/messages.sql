-- All messages as they stand: contents, state and lease in one row. {@x} is a table, {x} a column.
(SELECT o.{seq}, o.{message_id}, o.{uuid}, o.{topic}, o.{payload}, o.{correlation_id}, o.{created_at}, o.{due_at},
        CASE s.{status} WHEN 5 THEN 0 ELSE COALESCE(s.{status}, 4) END AS {status},
        COALESCE(s.{retry_count}, 0) AS {retry_count},
        COALESCE(s.{next_attempt_at}, o.{created_at}) AS {next_attempt_at},
        s.{owner_token},
        COALESCE(s.{flags}, 2) AS {flags},
        l.{locked_until},
        CASE WHEN s.{seq} IS NULL THEN o.{created_at} ELSE s.{processed_at} END AS {processed_at},
        COALESCE(w.{name}, CASE WHEN s.{seq} IS NULL THEN 'log' END) AS {processed_by},
        (SELECT a.{error} FROM {@attempt} a
         WHERE a.{seq} = o.{seq}
           AND a.{attempt_id} = (SELECT MAX(b.{attempt_id}) FROM {@attempt} b WHERE b.{seq} = o.{seq} AND b.{error} IS NOT NULL)) AS {last_error}
 FROM {@} o
 LEFT JOIN {@state} s ON s.{seq} = o.{seq}
 LEFT JOIN {@lease} l ON l.{owner_token} = s.{owner_token}
 LEFT JOIN {@worker} w ON w.{worker_id} = s.{worker_id}
 WHERE s.{seq} IS NOT NULL
    OR EXISTS (SELECT 1 FROM {@log} g WHERE g.{message_id} = o.{message_id})
    OR EXISTS (SELECT 1 FROM {@log_pending} g WHERE g.{message_id} = o.{message_id})) AS messages
