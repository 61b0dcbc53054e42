-- Reads a counter. $1 key.
SELECT pg_is_in_recovery(), coalesce((SELECT last FROM onerun_leases WHERE key = $1::bytea), 0)
