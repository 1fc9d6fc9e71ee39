-- Call ids whose call is another one's: they came with its idempotency key. An alias means what it
-- says while the call is in the life it names.
CREATE TABLE aliases (
    call_id  TEXT NOT NULL,
    client   TEXT NOT NULL,
    call     INTEGER NOT NULL,
    life     INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (call_id, client)
) WITHOUT ROWID;

CREATE INDEX aliases_call ON aliases (call);
