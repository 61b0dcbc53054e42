-- Deletes a gate whose row somebody has deleted by hand. ? key, gate.
DELETE g FROM onerun_leases g LEFT JOIN onerun_leases r ON r.k = ? WHERE g.k = ? AND r.k IS NULL
