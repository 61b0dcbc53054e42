-- Writes a key. ?1 key, ?2 state, ?3 ID, ?4 label, ?5 fence, ?6 last fence, ?7 end, ?8 record,
-- ?9 sharing, ?10 the clock, ?11 the day on which the row may be deleted.
INSERT INTO onerun_leases (key, state, id, label, fence, last, ends, record, sharing, version, forget_on)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
ON CONFLICT (key) DO UPDATE SET state = excluded.state, id = excluded.id, label = excluded.label,
	fence = excluded.fence, last = excluded.last, ends = excluded.ends, record = excluded.record,
	sharing = excluded.sharing, version = version + 1, forget_on = excluded.forget_on
