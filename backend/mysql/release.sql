-- Releases a claim that holds its key alone. ? state that it leaves, for how long in microseconds,
-- the same, record, whether it leaves a marker, label of the marker; then the key, and the ID.
UPDATE onerun_leases
SET state = ?, ends = CLOCK + ?, forget_on = (CLOCK + ?) DIV 86400000000 + 2, record = ?,
	label = IF(?, ?, label), version = version + 1
WHERE k = ? AND state = 'held' AND id = ? AND ends > CLOCK AND WRITABLE
