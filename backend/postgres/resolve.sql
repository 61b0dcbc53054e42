-- Finds the table of a name without a schema. $1 the name as SQL quotes it, $2 the name.
--
-- Answers its schema, whether it is temporary, how many schemas have a table of that name, and
-- whether a SET of this session has changed search_path: other sessions can have another one.
-- It fails with 42P01 if there is no such table.
SELECT n.nspname, c.relpersistence = 't',
	(SELECT count(*) FROM pg_class o
		WHERE o.relname = $2::text AND o.relkind IN ('r', 'p', 'v', 'f') AND o.relpersistence <> 't'),
	(SELECT s.source = 'session' AND s.setting IS DISTINCT FROM s.reset_val
		FROM pg_settings s WHERE s.name = 'search_path')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = $1::text::regclass
