-- The tool has shown that it knows the call: a "not found" about it is no longer believed. Calls that
-- are open say so from their history on.
ALTER TABLE calls ADD COLUMN recognised INTEGER NOT NULL DEFAULT 0;
-- The head of a streamed answer was passed to the caller: the call is never sent again.
ALTER TABLE calls ADD COLUMN told INTEGER NOT NULL DEFAULT 0;
UPDATE calls SET recognised = 1 WHERE id IN (
    SELECT d.call FROM dead_letter d JOIN calls c ON c.id = d.call AND c.life = d.life
        JOIN history h ON h.call = d.call AND h.life = d.life
        WHERE d.state IN ('QUEUED', 'RUNNING', 'REVERSING', 'MANUAL')
        AND ((h.kind = 'receipt' AND h.word IN ('RECEIVED', 'PROCESSING'))
            OR (h.kind = 'ended' AND h.word LIKE 'pending %'))
    UNION ALL
    SELECT c.id FROM calls c JOIN history h ON h.call = c.id AND h.life = c.life
        WHERE c.purge_at IS NULL AND c.parked = 0
        AND ((h.kind = 'receipt' AND h.word IN ('RECEIVED', 'PROCESSING'))
            OR (h.kind = 'ended' AND h.word LIKE 'pending %'))
);
