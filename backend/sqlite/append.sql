-- Adds an entry to a log. ?1 key of the entry, ?2 and ?3 the range of the keys of the log, ?4 the
-- number that orders it, ?5 record, ?6 how many to keep, ?7 the clock, ?8 the day on which it may be
-- deleted.
INSERT INTO onerun_leases (key, state, id, label, fence, last, ends, record, version, forget_on)
SELECT ?1, 'entry', '', x'', 0, ?4, ?7, ?5, 1, ?8
WHERE (SELECT count(*) FROM onerun_leases
	WHERE key >= ?2 AND key < ?3 AND state = 'entry' AND (last, record) > (?4, ?5)) < ?6
ON CONFLICT (key) DO NOTHING
