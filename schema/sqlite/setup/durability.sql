-- One sentence per row for each setting under which a commit that succeeded may be lost.
SELECT CASE s.synchronous WHEN 0 THEN 'synchronous is OFF: the whole file may be damaged; open the database with _pragma=synchronous(FULL)'
                          ELSE 'synchronous is NORMAL: a commit returns before it is written; open the database with _pragma=synchronous(FULL)' END
FROM pragma_synchronous AS s WHERE s.synchronous < 2;
