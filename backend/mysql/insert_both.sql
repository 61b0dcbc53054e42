-- Is insert and gate_insert, by one statement. ? what insert has, then what gate_insert has.
INSERT INTO onerun_leases (k, state, id, label, fence, last, ends, record, sharing, forget_on, granted, version)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?), (?, 'gate', '', '', 0, 0, 0, NULL, NULL, NEVER, ?, 0)
