-- Reads a key as read.sql does, and keeps new holders of it away until the transaction ends: each
-- grant needs a lock that conflicts with KEY SHARE. Renewals and releases need none. $1 key.
SELECT pg_is_in_recovery(), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, version,
	state, id, encode(label, 'base64'), fence, last, (extract(epoch FROM ends) * 1000000)::bigint,
	encode(record, 'base64'), sharing
FROM onerun_leases WHERE key = $1::bytea FOR KEY SHARE
