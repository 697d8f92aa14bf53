-- One sentence per row for each setting under which a commit that succeeded may be lost.
SELECT N'DELAYED_DURABILITY is FORCED: a commit returns before it is written'
FROM sys.databases AS d
WHERE d.database_id = DB_ID() AND d.delayed_durability = 2;
