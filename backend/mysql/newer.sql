-- Counts the entries of a log that are newer than another one. ? first key of the log and the one
-- after it, number that orders the entry, the same, record.
SELECT STATUS, COUNT(*) FROM onerun_leases
WHERE k >= ? AND k < ? AND state = 'entry' AND (last > ? OR last = ? AND record > ?)
