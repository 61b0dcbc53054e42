-- Locks a key and its gate for a grant, and fails if a transaction has locked one of them, such as one
-- that has checked a fence: the grant does not wait for it. ? gate, key. Answers the version of the
-- key, and that of the last grant, which is NULL if somebody has deleted the gate by hand.
SELECT r.version, g.granted FROM onerun_leases r LEFT JOIN onerun_leases g ON g.k = ? WHERE r.k = ?
FOR UPDATE NOWAIT
