-- Finds the oldest entries of a log. ? first key of the log and the one after it, how many to keep.
SELECT STATUS, k FROM onerun_leases WHERE k >= ? AND k < ? AND state = 'entry'
ORDER BY last DESC, record DESC LIMIT 1000 OFFSET ?
