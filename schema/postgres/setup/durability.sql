-- One sentence per row for each setting under which a commit that succeeded may be lost. synchronous_commit is that of this
-- session, as the role and the database have it.
SELECT 'fsync is off: the whole database may be damaged' WHERE current_setting('fsync') = 'off'
UNION ALL
SELECT 'full_page_writes is off: the whole database may be damaged' WHERE current_setting('full_page_writes') = 'off'
UNION ALL
SELECT 'synchronous_commit is off: a commit returns before it is written' WHERE current_setting('synchronous_commit') = 'off';
