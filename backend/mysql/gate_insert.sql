-- Makes the gate of a key whose gate was deleted by hand. ? gate. It is deleted with its row.
INSERT INTO onerun_leases (k, state, id, label, fence, last, ends, record, sharing, forget_on, granted, version)
VALUES (?, 'gate', '', '', 0, 0, 0, NULL, NULL, NEVER, 0, 0)
