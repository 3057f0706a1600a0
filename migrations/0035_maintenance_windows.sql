-- expand: maintenance windows, in which alarms are raised and nobody is notified
CREATE TABLE maintenance_windows (
  key bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  id uuid NOT NULL,
  domain_key bigint NOT NULL,
  name text NOT NULL,
  description text NOT NULL DEFAULT '',
  starts_at timestamptz,
  ends_at timestamptz,
  schedule text,
  timezone text,
  duration_seconds bigint,
  rule_ids uuid[],
  client_ids uuid[],
  group_ids uuid[],
  tags text[],
  created_by uuid NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_by uuid,
  updated_at timestamptz,
  CONSTRAINT maintenance_windows_pkey PRIMARY KEY (key),
  CONSTRAINT maintenance_windows_id_key UNIQUE (id),
  CONSTRAINT maintenance_windows_name_key UNIQUE (domain_key, name),
  CONSTRAINT maintenance_windows_domain_fkey FOREIGN KEY (domain_key) REFERENCES domains(key) ON DELETE CASCADE,
  CONSTRAINT maintenance_windows_schedule_check CHECK (num_nulls(schedule, timezone, duration_seconds) IN (0, 3)),
  CONSTRAINT maintenance_windows_time_check CHECK (schedule IS NOT NULL OR (starts_at IS NOT NULL AND ends_at IS NOT NULL)),
  CONSTRAINT maintenance_windows_order_check CHECK (ends_at > starts_at)
);
COMMENT ON TABLE maintenance_windows IS 'Planned times of a domain in which rules raise alarms and notify nobody.';
COMMENT ON COLUMN maintenance_windows.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN maintenance_windows.id IS 'Id that users see.';
COMMENT ON COLUMN maintenance_windows.domain_key IS 'The domain.';
COMMENT ON COLUMN maintenance_windows.name IS 'Name, unique in the domain.';
COMMENT ON COLUMN maintenance_windows.description IS 'What is done then.';
COMMENT ON COLUMN maintenance_windows.starts_at IS 'When it starts; with a schedule: nothing before it is maintenance. NULL: no bound.';
COMMENT ON COLUMN maintenance_windows.ends_at IS 'When it ends; with a schedule: nothing after it is maintenance. NULL: no bound.';
COMMENT ON COLUMN maintenance_windows.schedule IS 'Cron expression of the times when it starts; NULL: it is once.';
COMMENT ON COLUMN maintenance_windows.timezone IS 'Time zone of the schedule.';
COMMENT ON COLUMN maintenance_windows.duration_seconds IS 'How long it lasts each time, in elapsed seconds.';
COMMENT ON COLUMN maintenance_windows.rule_ids IS 'Ids of the rules that it is about; NULL: all.';
COMMENT ON COLUMN maintenance_windows.client_ids IS 'Ids of the clients; NULL: all.';
COMMENT ON COLUMN maintenance_windows.group_ids IS 'Ids of groups of clients, with the groups below them; NULL: all.';
COMMENT ON COLUMN maintenance_windows.tags IS 'Tags of clients, of which one must match; NULL: all.';
COMMENT ON COLUMN maintenance_windows.created_by IS 'Id of the user who created it.';
COMMENT ON COLUMN maintenance_windows.created_at IS 'When it was created.';
COMMENT ON COLUMN maintenance_windows.updated_by IS 'Id of the user who last changed it; NULL: it was never changed.';
COMMENT ON COLUMN maintenance_windows.updated_at IS 'When it was last changed; NULL: never.';
CREATE INDEX maintenance_windows_page ON maintenance_windows (domain_key, created_at, key);

ALTER TABLE rule_states ADD COLUMN silenced_until timestamptz;
COMMENT ON COLUMN rule_states.silenced_until IS 'Nobody was notified that the rule raised, because of maintenance, which is looked at again then; NULL: its contacts were, or it did not raise.';
CREATE INDEX rule_states_silenced ON rule_states (silenced_until) WHERE silenced_until IS NOT NULL;

ALTER TABLE alarms ADD COLUMN maintenance_id uuid, ADD COLUMN maintenance_name text NOT NULL DEFAULT '', ADD COLUMN silenced_until timestamptz;
COMMENT ON COLUMN alarms.maintenance_id IS 'Id of the maintenance window in which it was raised; NULL: in none. The window may be deleted since.';
COMMENT ON COLUMN alarms.maintenance_name IS 'Name of that window then.';
COMMENT ON COLUMN alarms.silenced_until IS 'Nobody was notified of it, because of maintenance up to this time; NULL: its contacts were.';
-- What is there is checked by the next migration, which lets others go on meanwhile.
ALTER TABLE alarm_history DROP CONSTRAINT alarm_history_change_check, ADD CONSTRAINT alarm_history_change_check
  CHECK (change IN ('raise', 'unsilence', 'acknowledge', 'unacknowledge', 'assign', 'comment', 'clear')) NOT VALID;
