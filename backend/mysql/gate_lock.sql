-- Locks a gate for a grant, and fails if a transaction has checked a fence: the grant does not wait for
-- it. ? gate. Answers nothing if there is no gate: somebody has deleted it by hand.
SELECT granted FROM onerun_leases WHERE k = ? FOR UPDATE NOWAIT
