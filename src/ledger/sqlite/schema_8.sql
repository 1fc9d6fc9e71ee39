-- The sweep at a start looks for calls that were in line: unsettled, and without a dead letter. By
-- the time of their removal alone it would have to look at every dead letter.
DROP INDEX calls_purge;
CREATE INDEX calls_purge ON calls (purge_at, parked);
