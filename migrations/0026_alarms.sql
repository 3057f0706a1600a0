-- expand: alarms, which rules raise and people answer, and what was done with each
CREATE TABLE alarms (
  key bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  id uuid NOT NULL,
  domain_key bigint NOT NULL,
  rule_id uuid NOT NULL,
  rule_name text NOT NULL,
  client_id uuid,
  client_name text NOT NULL DEFAULT '',
  channel_id uuid,
  channel_name text NOT NULL DEFAULT '',
  subtopic text NOT NULL DEFAULT '',
  name text NOT NULL DEFAULT '',
  series_digest bytea NOT NULL,
  unit text NOT NULL DEFAULT '',
  severity text NOT NULL,
  value jsonb,
  text text NOT NULL DEFAULT '',
  condition text NOT NULL DEFAULT '',
  cause text NOT NULL DEFAULT '',
  count bigint NOT NULL DEFAULT 1,
  comments integer NOT NULL DEFAULT 0,
  first_at timestamptz NOT NULL,
  last_at timestamptz NOT NULL,
  acknowledged_at timestamptz,
  acknowledged_by uuid,
  assignee_id uuid,
  cleared_at timestamptz,
  cleared_by uuid,
  updated_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT alarms_pkey PRIMARY KEY (key),
  CONSTRAINT alarms_id_key UNIQUE (id),
  CONSTRAINT alarms_domain_fkey FOREIGN KEY (domain_key) REFERENCES domains(key) ON DELETE CASCADE,
  CONSTRAINT alarms_severity_check CHECK (severity IN ('info', 'warning', 'major', 'critical')),
  CONSTRAINT alarms_acknowledged_check CHECK (num_nulls(acknowledged_at, acknowledged_by) IN (0, 2)),
  CONSTRAINT alarms_cleared_check CHECK (cleared_at IS NOT NULL OR cleared_by IS NULL)
);
COMMENT ON TABLE alarms IS 'Alarms: a condition of a rule that holds for a series of a client. An alarm remains when its rule, client or channel is deleted.';
COMMENT ON COLUMN alarms.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN alarms.id IS 'Id that users see.';
COMMENT ON COLUMN alarms.domain_key IS 'The domain.';
COMMENT ON COLUMN alarms.rule_id IS 'Id of the rule that raised it; the rule may be deleted since.';
COMMENT ON COLUMN alarms.rule_name IS 'Name of the rule when it raised it.';
COMMENT ON COLUMN alarms.client_id IS 'Id of the client whose message raised it; NULL: no client sent it.';
COMMENT ON COLUMN alarms.client_name IS 'Name of the client then.';
COMMENT ON COLUMN alarms.channel_id IS 'Id of the channel of the message; NULL: no message raised it.';
COMMENT ON COLUMN alarms.channel_name IS 'Name of the channel then.';
COMMENT ON COLUMN alarms.subtopic IS 'Subtopic of the message, elements joined by a dot.';
COMMENT ON COLUMN alarms.name IS 'Name of the record; empty: the message has no records.';
COMMENT ON COLUMN alarms.series_digest IS 'SHA-256 of client, channel, subtopic and name, which together may be too long for an index.';
COMMENT ON COLUMN alarms.unit IS 'Unit of the record.';
COMMENT ON COLUMN alarms.severity IS 'How serious it is: info, warning, major or critical.';
COMMENT ON COLUMN alarms.value IS 'The value that raised it, or that was last seen while the condition held; NULL: none.';
COMMENT ON COLUMN alarms.text IS 'What the rule says about it.';
COMMENT ON COLUMN alarms.condition IS 'The condition of the rule when it raised it.';
COMMENT ON COLUMN alarms.cause IS 'Position of the message that raised it.';
COMMENT ON COLUMN alarms.count IS 'Number of times that the condition was found to hold.';
COMMENT ON COLUMN alarms.comments IS 'Number of comments.';
COMMENT ON COLUMN alarms.first_at IS 'When it was raised.';
COMMENT ON COLUMN alarms.last_at IS 'When its condition was last found to hold.';
COMMENT ON COLUMN alarms.acknowledged_at IS 'When somebody took notice of it; NULL: nobody did.';
COMMENT ON COLUMN alarms.acknowledged_by IS 'Id of that user.';
COMMENT ON COLUMN alarms.assignee_id IS 'Id of the user who takes care of it; NULL: nobody.';
COMMENT ON COLUMN alarms.cleared_at IS 'When it was cleared; NULL: it is open.';
COMMENT ON COLUMN alarms.cleared_by IS 'Id of the user who cleared it; NULL: the rule did, or it is open.';
COMMENT ON COLUMN alarms.updated_at IS 'When it was last changed.';
CREATE UNIQUE INDEX alarms_open_key ON alarms (rule_id, series_digest) WHERE cleared_at IS NULL;
CREATE INDEX alarms_page ON alarms (domain_key, first_at, key);
CREATE INDEX alarms_open ON alarms (domain_key, first_at, key) WHERE cleared_at IS NULL;
CREATE INDEX alarms_client ON alarms (client_id, first_at);
CREATE INDEX alarms_cleared ON alarms (cleared_at) WHERE cleared_at IS NOT NULL;

CREATE TABLE alarm_history (
  key bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  alarm_key bigint NOT NULL,
  at timestamptz NOT NULL DEFAULT now(),
  change text NOT NULL,
  actor_id uuid,
  assignee_id uuid,
  comment text NOT NULL DEFAULT '',
  CONSTRAINT alarm_history_pkey PRIMARY KEY (key),
  CONSTRAINT alarm_history_alarm_fkey FOREIGN KEY (alarm_key) REFERENCES alarms(key) ON DELETE CASCADE,
  CONSTRAINT alarm_history_change_check CHECK (change IN ('raise', 'acknowledge', 'unacknowledge', 'assign', 'comment', 'clear'))
);
COMMENT ON TABLE alarm_history IS 'What was done with an alarm, by whom and when.';
COMMENT ON COLUMN alarm_history.key IS 'Internal key, in the order of the changes of one alarm.';
COMMENT ON COLUMN alarm_history.alarm_key IS 'The alarm.';
COMMENT ON COLUMN alarm_history.at IS 'When it was done.';
COMMENT ON COLUMN alarm_history.change IS 'What was done.';
COMMENT ON COLUMN alarm_history.actor_id IS 'Id of the user who did it; NULL: the rule.';
COMMENT ON COLUMN alarm_history.assignee_id IS 'To whom it was assigned; NULL: to nobody, or it was not assigned.';
COMMENT ON COLUMN alarm_history.comment IS 'The comment; empty: none.';
CREATE INDEX alarm_history_alarm ON alarm_history (alarm_key, key);
