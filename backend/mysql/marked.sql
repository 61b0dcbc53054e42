-- Looks for done markers. ? keys. Answers each key that has one, and NULL if none has.
SELECT STATUS, r.k FROM (SELECT 1) o
LEFT JOIN onerun_leases r ON r.k IN (?) AND r.state = 'done' AND r.ends > CLOCK
