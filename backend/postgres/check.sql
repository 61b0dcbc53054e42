-- Reads a lease and keeps new holders of its key away until the transaction ends: each grant needs
-- a lock that conflicts with KEY SHARE. Renewals and releases need none. $1 key.
SELECT state, fence, last, ends > clock_timestamp(), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
	sharing
FROM onerun_leases WHERE key = $1::bytea FOR KEY SHARE
