-- The answers of calls that were settled in line, beside their calls. A row that grows when its call
-- ends no longer fits among its neighbours, and its page is split: a fifth of the file was air. So
-- what an end brings is added behind what other ends brought. Answers from before stay where they
-- are, and those of calls that were parked stay with their call, as their receipts do.
CREATE TABLE replies (
    call           INTEGER PRIMARY KEY,
    kept_headers   BLOB,
    kept_body      BLOB,
    kept_document  BLOB
);
