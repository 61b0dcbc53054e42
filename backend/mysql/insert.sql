-- Writes a key that had no row, with its gate. It fails if there is a row. ? key, state, ID, label,
-- fence, last fence, end, record, sharing, version, version of the grant, day; then the gate's key,
-- version of the grant, and day.
INSERT INTO onerun_leases (k, state, id, label, fence, last, ends, record, sharing, version, granted, forget_on)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?), (?, 'gate', '', '', 0, 0, 0, NULL, NULL, 0, ?, ?)
