-- Reads a key as read.sql does, and makes the transaction the writer of the file. ?1 key.
UPDATE onerun_leases SET version = version WHERE key = ?1
RETURNING version, state, id, label, fence, last, ends, record, sharing
