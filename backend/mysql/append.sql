-- Adds a row of a ledger. ? key, state, number, record, for how many days. It fails if there is one.
INSERT INTO onerun_leases (k, state, id, label, fence, last, ends, record, version, granted, forget_on)
VALUES (?, ?, '', '', 0, ?, CLOCK, ?, 1, 0, CLOCK DIV 86400000000 + ?)
