-- Is write for a grant, which also changes the gate. ? gate, then what write has, with the version of
-- the grant twice before the key.
UPDATE onerun_leases r LEFT JOIN onerun_leases g ON g.k = ?
SET r.state = ?, r.id = ?, r.label = ?, r.fence = ?, r.last = ?, r.ends = ?, r.record = ?, r.sharing = ?, r.forget_on = ?,
	r.version = r.version + 1, r.granted = ?, g.granted = ?
WHERE r.k = ? AND r.version = ?
