CREATE TABLE stock (
  coupon    TEXT PRIMARY KEY,
  remaining INTEGER NOT NULL,
  fence     INTEGER NOT NULL DEFAULT 0 -- the highest that has written
);

CREATE TABLE claims (
  coupon   TEXT    NOT NULL REFERENCES stock,
  user     TEXT    NOT NULL, -- not UNIQUE: it is the guard's task here that nobody has two
  size     TEXT    NOT NULL,
  server   TEXT    NOT NULL,
  fence    INTEGER NOT NULL
);

-- Writes that came too late, under a fence that was not the highest any more.
CREATE TABLE refused (
  coupon      TEXT    NOT NULL REFERENCES stock,
  user        TEXT    NOT NULL,
  server      TEXT    NOT NULL,
  fence       INTEGER NOT NULL,
  stock_fence INTEGER NOT NULL
);
