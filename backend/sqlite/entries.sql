-- Reads a log. ?1 and ?2 the range of its keys, ?3 how many entries.
SELECT last, record FROM onerun_leases WHERE key >= ?1 AND key < ?2 AND state = 'entry'
ORDER BY last DESC, record DESC LIMIT ?3
