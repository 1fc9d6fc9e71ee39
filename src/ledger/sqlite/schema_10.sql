-- Calls in line and calls that ended, each in an index of their own. In one, every call went into its
-- front, was taken out again and put behind; now the first holds the few that are in line, on a page
-- or two, and the second only ever grows at its end. Calls in the compensation queue are in neither.
DROP INDEX calls_purge;
CREATE INDEX calls_purge ON calls (purge_at) WHERE purge_at IS NOT NULL;
CREATE INDEX calls_open ON calls (parked) WHERE purge_at IS NULL AND parked = 0;

-- Who had the call in line: exchanges of that process may still be open when others claim it.
ALTER TABLE dead_letter ADD COLUMN begun_by TEXT;

-- From here on the row of a call says less twice. One that has ended has no owner and no lease: they
-- make room for what its end brings, so that the row does not grow and part its page. `updated_at` 0
-- is: not changed but by its end; `first_sent_at` 0: when it was received; a `first_ended_at` without
-- `first_outcome`: it ended as it was settled. Frequent header fields are stored by a letter, one line
-- each (`J` alone is `content-type: application/json`). Rows from before stay as they are and are
-- read the same way.
CREATE TABLE header_letters (
    letter  TEXT PRIMARY KEY,
    field   TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO header_letters (letter, field) VALUES
    ('A', 'accept'), ('C', 'cache-control'), ('D', 'x-correlation-id'), ('E', 'accept-encoding'),
    ('F', 'forwarded'), ('G', 'etag'), ('H', 'host'), ('I', 'x-real-ip'),
    ('J', 'content-type: application/json'), ('K', 'content-encoding'), ('L', 'accept-language'),
    ('M', 'last-modified'), ('N', 'content-length'), ('O', 'origin'), ('P', 'x-forwarded-for'),
    ('Q', 'x-forwarded-proto'), ('R', 'referer'), ('S', 'server'), ('T', 'content-type'),
    ('U', 'user-agent'), ('V', 'via'), ('W', 'x-forwarded-host'), ('X', 'x-request-id'),
    ('Y', 'vary'), ('Z', 'location');
