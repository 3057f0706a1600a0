-- expand: rules whose source is a schedule
ALTER TABLE rules ADD COLUMN next_tick_at timestamptz, ADD COLUMN tick_after bigint, ADD COLUMN missed_ticks bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN rules.next_tick_at IS 'Of a schedule: the time that it is evaluated for next, or now; NULL: there is none, or it is about something else.';
COMMENT ON COLUMN rules.tick_after IS 'Key of the last series that was evaluated for that time; NULL: none was yet.';
COMMENT ON COLUMN rules.missed_ticks IS 'Scheduled times for which it was not evaluated.';
CREATE INDEX rules_ticks ON rules (next_tick_at) WHERE next_tick_at IS NOT NULL AND status = 'enabled' AND paused_at IS NULL;
