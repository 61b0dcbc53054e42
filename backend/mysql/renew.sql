-- Renews a claim that holds its key alone. ? fence and the last fence that it reserves, fence, TTL in
-- microseconds, the same; then the key, and the ID.
UPDATE onerun_leases
SET last = IF(? > fence, GREATEST(last, ?), last), fence = GREATEST(fence, ?), ends = CLOCK + ?,
	forget_on = (CLOCK + ?) DIV 86400000000 + 2, version = version + 1
WHERE k = ? AND state = 'held' AND id = ? AND ends > CLOCK AND WRITABLE
