-- Deletes rows. ? keys.
DELETE FROM onerun_leases WHERE k IN (?)
