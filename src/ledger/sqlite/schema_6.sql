-- Keys belong to a scope: the route, unless it names another one that several routes share. Where
-- one says so, calls without a key are looked for by what they ask.
ALTER TABLE calls ADD COLUMN scope TEXT;  -- of the key; null without one
UPDATE calls SET scope = route WHERE idempotency_key IS NOT NULL;
DROP INDEX calls_key;
CREATE UNIQUE INDEX calls_key ON calls (client, scope, idempotency_key) WHERE key_binds = 1;

-- The calls in the compensation queue by their request. Whoever is settled in line, as nearly all
-- are, never enters it.
CREATE INDEX calls_alike ON calls (fingerprint) WHERE parked = 1 AND purge_at IS NULL;
