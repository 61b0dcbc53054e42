-- Deletes entries of a log. ? keys.
DELETE FROM onerun_leases WHERE k IN (?) AND state = 'entry'
