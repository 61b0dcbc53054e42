CREATE TABLE entrants (
  id   INTEGER PRIMARY KEY,
  name TEXT NOT NULL
);

CREATE TABLE rounds (
  round INTEGER PRIMARY KEY,
  fence INTEGER NOT NULL DEFAULT 0 -- the highest under which a draw has begun
);

CREATE TABLE winners (
  round   INTEGER NOT NULL REFERENCES rounds,
  entrant INTEGER NOT NULL REFERENCES entrants,
  replica TEXT    NOT NULL,
  fence   INTEGER NOT NULL
);

-- The draws that were finished. Winners of other draws do not count.
CREATE TABLE draws (
  round   INTEGER NOT NULL REFERENCES rounds,
  replica TEXT    NOT NULL,
  fence   INTEGER NOT NULL
);

WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < 500)
INSERT INTO entrants SELECT id, 'entrant ' || id FROM n;
