-- Answers settings by which the server can forget what it has committed.
SELECT current_setting('fsync'), current_setting('synchronous_commit'),
	coalesce((SELECT relpersistence::text FROM pg_class WHERE oid = to_regclass($1::text)), '')
