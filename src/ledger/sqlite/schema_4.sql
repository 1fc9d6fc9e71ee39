-- Operators: what they did, and their bulk jobs.

-- What the tool's receipt said last about a dead letter, so that a list can be filtered by it. Kept
-- current here, because every path that writes history or parks a call would have to know of it.
ALTER TABLE dead_letter ADD COLUMN last_receipt TEXT;

UPDATE dead_letter SET last_receipt = (SELECT word FROM history
    WHERE call = dead_letter.call AND life = dead_letter.life AND kind = 'receipt'
    ORDER BY seq DESC LIMIT 1);

CREATE TRIGGER dead_letter_asked AFTER INSERT ON history WHEN new.kind = 'receipt' BEGIN
    UPDATE dead_letter SET last_receipt = new.word WHERE call = new.call AND life = new.life;
END;

CREATE TRIGGER dead_letter_parked AFTER INSERT ON dead_letter BEGIN
    UPDATE dead_letter SET last_receipt = (SELECT word FROM history
        WHERE call = new.call AND life = new.life AND kind = 'receipt' ORDER BY seq DESC LIMIT 1)
    WHERE call = new.call AND life = new.life;
END;

CREATE INDEX differences_at ON differences (at);

-- One line per verb of an operator. What sends is noted before it is sent and completed after.
CREATE TABLE audit (
    id        INTEGER PRIMARY KEY,
    at        INTEGER NOT NULL,
    who       TEXT NOT NULL,
    verb      TEXT NOT NULL,  -- receipt resend reverse resolve-success resolve-failed discard
                              -- release-key
    why       TEXT,
    call      INTEGER NOT NULL,
    life      INTEGER NOT NULL,
    call_id   TEXT NOT NULL,
    client    TEXT NOT NULL,
    job       INTEGER,        -- jobs.id
    before    TEXT NOT NULL,  -- the state of the dead letter
    after     TEXT,           -- null while it is under way, or when the process ended meanwhile
    told      TEXT,           -- what it came to
    ended_at  INTEGER
);

CREATE INDEX audit_call ON audit (call);

CREATE TABLE jobs (
    id          INTEGER PRIMARY KEY,
    verb        TEXT NOT NULL,     -- receipt resend reverse discard
    filter      TEXT NOT NULL,     -- as it was asked for; the name under which a second one joins
    who         TEXT NOT NULL,
    why         TEXT,
    at          INTEGER NOT NULL,
    per_minute  INTEGER NOT NULL,
    state       TEXT NOT NULL,     -- RUNNING DONE CANCELLED
    total       INTEGER NOT NULL,
    unended     INTEGER NOT NULL,  -- items without a result
    beyond      INTEGER NOT NULL,  -- rows that matched and were left out: past the bound
    ended_at    INTEGER,
    ended_by    TEXT
);

-- Two operators who want the same get the same job.
CREATE UNIQUE INDEX jobs_running ON jobs (verb, filter) WHERE state = 'RUNNING';

-- The rows of a job, fixed when it is made.
CREATE TABLE job_items (
    job       INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    call      INTEGER NOT NULL,
    life      INTEGER NOT NULL,
    call_id   TEXT NOT NULL,
    client    TEXT NOT NULL,
    state     TEXT NOT NULL,  -- WAITING BEGUN DONE
    owner     TEXT,           -- of those begun: the process that did
    result    TEXT,
    detail    TEXT,
    ended_at  INTEGER,
    PRIMARY KEY (job, seq)
) WITHOUT ROWID;

CREATE INDEX job_items_open ON job_items (job, seq) WHERE state <> 'DONE';
