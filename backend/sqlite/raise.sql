-- Sets a counter. ?1 key, ?2 number, ?3 the clock, ?4 the day on which it may be deleted.
INSERT INTO onerun_leases (key, state, id, label, fence, last, ends, version, forget_on)
VALUES (?1, 'counter', '', x'', 0, ?2, ?3, 1, ?4)
ON CONFLICT (key) DO UPDATE SET last = excluded.last, ends = excluded.ends,
	version = version + 1, forget_on = excluded.forget_on
