-- Fails if a transaction keeps new holders of a key away: a grant does not wait for it. ? gate.
SELECT 1 FROM onerun_leases WHERE k = ? FOR UPDATE NOWAIT
