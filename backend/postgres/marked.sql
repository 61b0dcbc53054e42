-- Looks for done markers. $1 keys, in JSON and base64. Answers whether the server is a standby, and the
-- index of each key and whether it has a marker.
SELECT pg_is_in_recovery(), k.i, coalesce(r.state = 'done' AND r.ends > clock_timestamp(), false)
FROM json_array_elements_text($1::json) WITH ORDINALITY AS k(key, i)
LEFT JOIN onerun_leases r ON r.key = decode(k.key, 'base64')
