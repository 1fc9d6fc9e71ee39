-- Compensation: where a dead letter goes back to, and its reversal.
ALTER TABLE dead_letter ADD COLUMN by_hand INTEGER NOT NULL DEFAULT 0;    -- RUNNING for an operator
ALTER TABLE dead_letter ADD COLUMN reversals INTEGER NOT NULL DEFAULT 0;  -- sends of the reversal
