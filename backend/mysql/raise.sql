-- Sets a counter, if it still has the number that was read. ? number, for how many days to keep it,
-- key, number that was read.
UPDATE onerun_leases SET last = ?, ends = CLOCK, forget_on = CLOCK DIV 86400000000 + ?, version = version + 1
WHERE k = ? AND last = ?
