-- The first schema of a callgate ledger. Times are milliseconds since 1970-01-01 UTC.
-- Later files only add; a ledger never loses a column that an older row was written with.

-- Policy snapshots, each text once.
CREATE TABLE policies (
    id    INTEGER PRIMARY KEY,
    text  TEXT NOT NULL UNIQUE
);

-- One row per client and call id. What decides stands first, what is large last: SQLite reads a row
-- from its front and need not follow it into its overflow pages.
CREATE TABLE calls (
    id               INTEGER PRIMARY KEY,
    call_id          TEXT NOT NULL,
    client           TEXT NOT NULL,
    life             INTEGER NOT NULL,  -- grows when a released or expired id is used again
    fence            INTEGER NOT NULL,  -- grows with every claim
    state            TEXT NOT NULL,     -- RECEIVED PROCESSING UNKNOWN, and settled: SUCCESS FAILED
    binds            INTEGER NOT NULL,  -- a repeat of the id meets this call
    key_binds        INTEGER NOT NULL,  -- so does another call with its idempotency key
    parked           INTEGER NOT NULL,  -- this life has a row in dead_letter
    promised         INTEGER NOT NULL,  -- accepted: never closed as never sent by a crash
    sends            INTEGER NOT NULL,
    touched_at       INTEGER NOT NULL,  -- the last of settlement and replay: the window runs from it
    window_ms        INTEGER NOT NULL,
    purge_at         INTEGER,           -- set when settled; looked at again before the row goes
    owner            TEXT NOT NULL,
    lease_until      INTEGER NOT NULL,
    received_at      INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    first_sent_at    INTEGER,
    first_ended_at   INTEGER,           -- the end of attempt 1, when it came with the settlement
    first_outcome    TEXT,
    first_took_ms    INTEGER,
    settled_at       INTEGER,
    settled_by       TEXT,
    route            TEXT NOT NULL,
    upstream         TEXT NOT NULL,
    policy           INTEGER NOT NULL,  -- policies.id
    source           TEXT NOT NULL,
    fingerprint      BLOB NOT NULL,
    idempotency_key  TEXT,
    business_key     TEXT,
    trace            TEXT,
    credential       INTEGER NOT NULL,  -- one came with the request; it is not stored
    reply_status     INTEGER,           -- settled: what repeats are told; open: the last 5xx
    reply_bytes      INTEGER,           -- of a body too large to keep
    reply_sha256     BLOB,
    method           TEXT NOT NULL,
    target           TEXT NOT NULL,
    request_headers  BLOB NOT NULL,
    request_body     BLOB NOT NULL,
    reply_headers    BLOB,
    reply_body       BLOB,
    document         BLOB               -- the receipt that settled it
);

-- The last line of defence. The call id leads, so that a look-up over all clients uses it too.
CREATE UNIQUE INDEX calls_id ON calls (call_id, client);
CREATE UNIQUE INDEX calls_key ON calls (client, route, idempotency_key) WHERE key_binds = 1;
-- Its front holds every unsettled call (purge_at is null), its back what can go.
CREATE INDEX calls_purge ON calls (purge_at);

-- What happened to a call besides its first send and the clean end of it; several lives of one row
-- stay apart.
CREATE TABLE history (
    call    INTEGER NOT NULL,
    life    INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    kind    TEXT NOT NULL,  -- sent ended receipt waited reconnected claimed parked
    n       INTEGER,        -- the attempt; of parked: the round; of claimed: the fence
    word    TEXT,           -- cause, outcome, receipt answer, what was waited for, owner, state
    doubt   TEXT,
    status  INTEGER,
    ms      INTEGER,
    late    INTEGER,
    detail  TEXT,
    PRIMARY KEY (call, life, seq)
) WITHOUT ROWID;

CREATE TABLE dead_letter (
    call             INTEGER NOT NULL,
    life             INTEGER NOT NULL,
    call_id          TEXT NOT NULL,
    route            TEXT NOT NULL,
    client           TEXT NOT NULL,
    business_key     TEXT,
    request_id       TEXT,              -- the idempotency key
    reason           TEXT NOT NULL,
    last_error       TEXT NOT NULL,
    fail_count       INTEGER NOT NULL,
    next_retry_time  INTEGER,
    create_time      INTEGER NOT NULL,
    state            TEXT NOT NULL,
    round            INTEGER NOT NULL,
    owner            TEXT,
    fence            INTEGER NOT NULL,
    lease_until      INTEGER,
    ended_at         INTEGER,
    PRIMARY KEY (call, life)
) WITHOUT ROWID;

CREATE INDEX dead_letter_due ON dead_letter (state, next_retry_time);
CREATE INDEX dead_letter_open ON dead_letter (state, route, create_time);

-- Facts that contradict a recorded end, each kind once per call.
CREATE TABLE differences (
    call  INTEGER NOT NULL,
    life  INTEGER NOT NULL,
    kind  TEXT NOT NULL,
    at    INTEGER NOT NULL,
    told  TEXT NOT NULL,
    PRIMARY KEY (call, life, kind)
) WITHOUT ROWID;

CREATE TABLE proofs (
    endpoint  TEXT PRIMARY KEY,
    state     TEXT NOT NULL,
    at        INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE meta (
    name   TEXT PRIMARY KEY,
    value  INTEGER NOT NULL
) WITHOUT ROWID;
