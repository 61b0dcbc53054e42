CREATE TABLE stock (
  coupon    TEXT PRIMARY KEY,
  remaining INTEGER NOT NULL,
  fence     INTEGER NOT NULL DEFAULT 0 -- the highest that a read has registered
);

CREATE TABLE claims (
  coupon   TEXT    NOT NULL REFERENCES stock,
  user     TEXT    NOT NULL, -- not UNIQUE: it is the guard's task here that nobody has two
  size     TEXT    NOT NULL,
  server   TEXT    NOT NULL,
  fence    INTEGER NOT NULL
);

-- Writes that came too late: a newer holder had read the stock, and its fence was higher.
CREATE TABLE refused (
  coupon      TEXT    NOT NULL REFERENCES stock,
  user        TEXT    NOT NULL,
  server      TEXT    NOT NULL,
  fence       INTEGER NOT NULL,
  stock_fence INTEGER NOT NULL
);
