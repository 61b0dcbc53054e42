-- Drops the oldest entries of a log. ?1 and ?2 the range of the keys of the log, ?3 how many to keep.
DELETE FROM onerun_leases WHERE key IN (
	SELECT key FROM onerun_leases WHERE key >= ?1 AND key < ?2 AND state = 'entry'
	ORDER BY last DESC, record DESC LIMIT -1 OFFSET ?3
)
