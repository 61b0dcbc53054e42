-- Writes a key if nobody else has written it since it was read. ? state, ID, label, fence, last
-- fence, end, record, sharing, day, version of the last grant; then the key, and the version that was
-- read.
UPDATE onerun_leases
SET state = ?, id = ?, label = ?, fence = ?, last = ?, ends = ?, record = ?, sharing = ?, forget_on = ?,
	granted = ?, version = version + 1
WHERE k = ? AND version = ?
