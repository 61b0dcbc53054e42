-- Reads what matters of one of several keys. ?1 key.
SELECT version, state, ends, last FROM onerun_leases WHERE key = ?1
