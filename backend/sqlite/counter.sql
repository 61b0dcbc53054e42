-- Reads a counter. ?1 key. Answers the number, and the day on which it may be deleted.
SELECT last, forget_on FROM onerun_leases WHERE key = ?1
