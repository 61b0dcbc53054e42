-- Asks for a key that the claim is to hold alone. $1 key, $2 ID, $3 TTL in microseconds, $4 label,
-- $5 fences to reserve.
--
-- Answers the fence and the last reserved one if the claim was granted, what it found, and whether
-- the session would find another table: then it grants nothing.
--
-- It decides by the row as it was when the statement began, and writes only if the row is still
-- the same. So a claim that is refused neither waits for a row lock nor takes one. If the row has
-- changed, nothing was granted, although the key was free.
WITH clock AS MATERIALIZED (
	SELECT now, us, ((us / 1000000) << 20) + us % 1000000 AS fence
	FROM (SELECT clock_timestamp() AS now) t,
		LATERAL (SELECT (extract(epoch FROM t.now) * 1000000)::bigint AS us) u
), seen AS MATERIALIZED (
	SELECT c.now, c.us, c.fence AS clock, r.version, r.state, r.id, r.label, r.fence, r.last, r.ends,
		coalesce(r.state <> 'free' AND r.ends > c.now, false) AS live,
		coalesce(r.state = 'held' AND r.ends > c.now AND r.id = $2::text, false) AS mine,
		CASE WHEN r.state = 'done' AND r.ends > c.now THEN r.record END AS record,
		ELSEWHERE AS elsewhere -- the session would find another table
	FROM clock c LEFT JOIN onerun_leases r ON r.key = $1::bytea
), locked AS (
	-- A transaction that has checked a fence of this key keeps new holders away by this lock.
	SELECT 1 FROM onerun_leases r
	WHERE r.key = $1::bytea AND r.version = (SELECT version FROM seen WHERE NOT live)
	FOR UPDATE
), next AS (
	SELECT seen.*, CASE
		WHEN mine THEN fence
		WHEN coalesce(last, 0) = 0 THEN clock + AHEAD -- it may have been forgotten
		ELSE greatest(last + 1, clock)
	END AS granted, now + $3::bigint * interval '1 microsecond' AS until
	FROM seen WHERE mine
		OR NOT elsewhere AND (version IS NULL OR NOT live AND EXISTS (SELECT 1 FROM locked))
), put AS (
	INSERT INTO onerun_leases AS r (key, state, id, label, fence, last, ends, version, forget_on)
	SELECT $1::bytea, 'held', $2::text, CASE WHEN mine THEN label ELSE $4::bytea END, granted,
		CASE WHEN mine THEN last ELSE granted
			+ greatest(least($5::bigint, (clock + AHEAD / 2 - granted) / 16), 0) END,
		until, us, (until AT TIME ZONE 'UTC')::date + 2
	FROM next
	ON CONFLICT (key) DO UPDATE SET state = 'held', id = EXCLUDED.id, label = EXCLUDED.label,
		fence = EXCLUDED.fence, last = EXCLUDED.last, ends = EXCLUDED.ends, record = NULL,
		sharing = NULL, version = r.version + 1, forget_on = EXCLUDED.forget_on
	WHERE r.version = (SELECT version FROM seen)
	RETURNING r.fence, r.last
)
SELECT p.fence, p.last, s.mine, s.live, coalesce(s.state, ''), coalesce(s.id, ''),
	encode(coalesce(s.label, ''), 'base64'),
	coalesce((extract(epoch FROM s.ends) * 1000000)::bigint - s.us, 0), encode(s.record, 'base64'),
	s.elsewhere
FROM seen s LEFT JOIN put p ON true
