-- Compensation: where a dead letter goes back to, and its reversal.
ALTER TABLE dead_letter ADD COLUMN by_hand INTEGER NOT NULL DEFAULT 0;    -- RUNNING for an operator
ALTER TABLE dead_letter ADD COLUMN reversals INTEGER NOT NULL DEFAULT 0;  -- sends of the reversal

-- The undo request of a call, the same in every send.
CREATE TABLE reversals (
    call    INTEGER NOT NULL,
    life    INTEGER NOT NULL,
    method  TEXT NOT NULL,
    target  TEXT NOT NULL,
    body    BLOB NOT NULL,
    PRIMARY KEY (call, life)
) WITHOUT ROWID;

-- Call ids their own clients have undone (X-Call-Reverses): nothing is sent under them any more,
-- whether they arrived before or arrive afterwards.
CREATE TABLE never_send (
    call_id   TEXT NOT NULL,
    client    TEXT NOT NULL,
    upstream  TEXT NOT NULL,
    by        TEXT NOT NULL,              -- the call id of the reversal
    at        INTEGER NOT NULL,
    PRIMARY KEY (call_id, client, upstream)
) WITHOUT ROWID;

CREATE INDEX never_send_at ON never_send (at);
