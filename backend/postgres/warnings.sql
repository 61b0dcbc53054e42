-- Answers settings by which the server can forget what it has committed, and what makes keys slow.
-- $1 the table, $2 its name without a schema.
--
-- Answers fsync, synchronous_commit, the persistence of the table, its dead row versions if they
-- outnumber the rows, the age of the oldest snapshot in seconds, how many transactions the oldest
-- slot, standby or prepared transaction is behind, and how many schemas have a table of the name.
SELECT current_setting('fsync'), current_setting('synchronous_commit'),
	coalesce((SELECT relpersistence::text FROM pg_class WHERE oid = to_regclass($1::text)), ''),
	coalesce((SELECT CASE WHEN n_dead_tup > n_live_tup THEN n_dead_tup END
		FROM pg_stat_all_tables WHERE relid = to_regclass($1::text)), 0),
	coalesce((SELECT extract(epoch FROM clock_timestamp() - min(xact_start))
		FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()
			AND backend_type = 'client backend'), 0)::bigint,
	coalesce((SELECT max(age(x.xmin)) FROM (
		SELECT xmin FROM pg_replication_slots WHERE xmin IS NOT NULL
		UNION ALL SELECT backend_xmin FROM pg_stat_replication WHERE backend_xmin IS NOT NULL
		UNION ALL SELECT transaction FROM pg_prepared_xacts
	) x), 0),
	(SELECT count(*) FROM pg_class
		WHERE relname = $2::text AND relkind IN ('r', 'p', 'v', 'f') AND relpersistence <> 't')
