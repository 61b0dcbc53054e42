-- Reads counters. $1 keys, in JSON and base64. Answers whether the server is a standby, and the index
-- and the number of each.
SELECT pg_is_in_recovery(), k.i, coalesce(r.last, 0)
FROM json_array_elements_text($1::json) WITH ORDINALITY AS k(key, i)
LEFT JOIN onerun_leases r ON r.key = decode(k.key, 'base64')
