-- Makes the gate of a key anew if somebody has deleted it by hand. ? gate, version of the grant.
INSERT INTO onerun_leases (k, state, id, label, fence, last, ends, version, granted, forget_on)
VALUES (?, 'gate', '', '', 0, 0, 0, 0, ?, 0)
