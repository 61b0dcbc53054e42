-- Writes a key that had no row. It fails if there is a row. ? key, state, ID, label, fence, last fence,
-- end, record, sharing, day, version of the grant, version.
INSERT INTO onerun_leases (k, state, id, label, fence, last, ends, record, sharing, forget_on, granted, version)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
