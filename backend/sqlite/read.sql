-- Reads a key. ?1 key.
SELECT version, state, id, label, fence, last, ends, record, sharing FROM onerun_leases WHERE key = ?1
