-- Deletes rows that old has found, if that still holds, with their gates. ? keys.
DELETE r, g FROM onerun_leases r LEFT JOIN onerun_leases g ON g.k = CONCAT(X'0067', r.k)
WHERE r.k IN (?) AND r.forget_on <= CLOCK DIV 86400000000 AND r.ends < CLOCK
	AND (r.state IN ('entry', 'counter') OR r.state <> 'gate' AND r.last >> 20 < CLOCK DIV 1000000)
