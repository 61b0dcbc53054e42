-- Notes a grant in a gate. ? version of the grant, gate.
UPDATE onerun_leases SET granted = ? WHERE k = ?
