-- Keeps new holders of a key away until the transaction ends: each grant changes the gate, and a
-- renewal does not. ? gate. Answers the version of the last grant. A locking read sees the newest row,
-- whatever the transaction has seen before.
SELECT granted FROM onerun_leases WHERE k = ? LOCK IN SHARE MODE
