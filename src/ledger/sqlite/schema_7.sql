-- Alerts: what people were told of, and what waits to be told. And what is left of the earlier
-- lives of a call id.
ALTER TABLE dead_letter ADD COLUMN alerted TEXT;  -- the state that was taken into an alert
ALTER TABLE differences ADD COLUMN alerted INTEGER NOT NULL DEFAULT 0;

CREATE INDEX dead_letter_unalerted ON dead_letter (route, state)
    WHERE state IN ('MANUAL', 'REVERSED') AND alerted IS NOT state;
CREATE INDEX differences_unalerted ON differences (call, life) WHERE alerted = 0;

-- One row per route and event: the alert that is next, and when the last one was told.
CREATE TABLE alerts (
    route     TEXT NOT NULL,
    event     TEXT NOT NULL,     -- manual reversed difference oldest_over
    told      INTEGER NOT NULL,  -- alerts delivered so far
    told_at   INTEGER,           -- the last of them
    waiting   INTEGER NOT NULL,  -- events nobody was told of yet
    held      INTEGER NOT NULL,  -- those of them that came up soon after the last alert
    since     INTEGER NOT NULL,  -- the first of them
    examples  TEXT NOT NULL,     -- a few of them: a call id, a space and its reason a line
    tries     INTEGER NOT NULL,  -- deliveries that failed since the last alert
    next_try  INTEGER,
    PRIMARY KEY (route, event)
) WITHOUT ROWID;

-- How a call ended whose id was used again: its row in calls speaks of the latest life only.
CREATE TABLE lives (
    call             INTEGER NOT NULL,
    life             INTEGER NOT NULL,
    source           TEXT NOT NULL,
    route            TEXT NOT NULL,
    upstream         TEXT NOT NULL,
    idempotency_key  TEXT,
    business_key     TEXT,
    fingerprint      BLOB NOT NULL,
    state            TEXT NOT NULL,
    sends            INTEGER NOT NULL,
    received_at      INTEGER NOT NULL,
    first_sent_at    INTEGER,
    first_ended_at   INTEGER,
    first_outcome    TEXT,
    first_took_ms    INTEGER,
    settled_at       INTEGER,
    settled_by       TEXT,
    reply_status     INTEGER,
    PRIMARY KEY (call, life)
) WITHOUT ROWID;
