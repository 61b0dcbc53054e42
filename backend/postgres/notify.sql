-- Notifies waiters of other processes. $1 channel, $2 payloads in JSON. The transaction writes
-- nothing else, so it does not wait for the disk while it has the lock of NOTIFY.
SELECT count(pg_notify($1::text, p.payload)::text)
FROM json_array_elements_text($2::json) AS p(payload)
