-- Batches and their items. The counts move in the same step as the items.
CREATE TABLE batches (
    id          INTEGER PRIMARY KEY,
    name        TEXT NOT NULL UNIQUE,
    client      TEXT NOT NULL,
    route       TEXT NOT NULL,
    state       TEXT NOT NULL,     -- LOADING RUNNING PAUSED CANCELLED FINISHED
    workers     INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    ended_at    INTEGER,
    last_line   INTEGER NOT NULL,
    waiting     INTEGER NOT NULL,
    leased      INTEGER NOT NULL,
    done        INTEGER NOT NULL,
    refused     INTEGER NOT NULL,
    unresolved  INTEGER NOT NULL,
    bad         INTEGER NOT NULL,
    cancelled   INTEGER NOT NULL,
    retried     INTEGER NOT NULL,  -- of those that ended: sent more than once
    by_receipt  INTEGER NOT NULL,  -- settled by a receipt
    replayed    INTEGER NOT NULL   -- answered by a stored result
);

-- One row per line of the file. `id` is batch * 2^32 + line: the rows of a batch lie in their order
-- and need no index of their own. What moves stands first, what is large last.
CREATE TABLE batch_items (
    id           INTEGER PRIMARY KEY,
    state        TEXT NOT NULL,    -- WAITING LEASED DONE REFUSED UNRESOLVED BAD CANCELLED
    owner        TEXT,
    lease_until  INTEGER,
    seen_at      INTEGER NOT NULL, -- when it was written: windows of its key are of this time
    updated_at   INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    status       INTEGER,
    outcome      TEXT,
    call_id      TEXT,             -- fixed when the item was written
    source       TEXT,
    original     TEXT,             -- the call whose answer this is, when it is another one's
    business_key TEXT,
    error        TEXT,
    hash         BLOB NOT NULL,
    method       TEXT,
    target       TEXT,
    headers      BLOB,
    body         BLOB
);

-- Each holds only what is in that state, so that a claim costs the same at the first line and at
-- the last.
CREATE INDEX batch_items_waiting ON batch_items (id) WHERE state = 'WAITING';
CREATE INDEX batch_items_leased ON batch_items (id) WHERE state = 'LEASED';
CREATE INDEX batch_items_unresolved ON batch_items (id) WHERE state = 'UNRESOLVED';
CREATE INDEX batch_items_call ON batch_items (call_id) WHERE state = 'UNRESOLVED';
