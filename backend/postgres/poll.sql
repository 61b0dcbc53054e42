-- Looks at keys. $1 keys in JSON. Answers for each key: its index, its version, and whether a claim
-- might be granted, or be answered otherwise than before.
SELECT false, k.i, coalesce(r.version, 0), coalesce(r.state <> 'held' OR r.ends <= clock_timestamp(), true)
FROM json_array_elements_text($1::json) WITH ORDINALITY AS k(key, i)
LEFT JOIN onerun_leases r ON r.key = decode(k.key, 'base64')
