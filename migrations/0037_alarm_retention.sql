-- expand: how long a domain keeps alarms that were cleared
-- Each domain has its own time, so the oldest of all say nothing.
CREATE INDEX alarms_kept ON alarms (domain_key, cleared_at) WHERE cleared_at IS NOT NULL;
DROP INDEX alarms_cleared;

-- Last: the index takes a while, and everything reads the domains.
ALTER TABLE domains ADD COLUMN alarm_retention_days integer,
  ADD CONSTRAINT domains_alarm_retention_check CHECK (alarm_retention_days > 0);
COMMENT ON COLUMN domains.alarm_retention_days IS 'Days that cleared alarms are kept; NULL: as the platform says.';
