-- Answers the engine of a table. ? database, table.
SELECT STATUS, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?
