-- Looks at keys. ? keys. Answers for each key that has a row: its version, and whether a claim might be
-- granted, or be answered otherwise than before.
SELECT STATUS, k, version, state <> 'held' OR ends <= CLOCK FROM onerun_leases WHERE k IN (?)
