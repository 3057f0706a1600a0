-- expand: commands to devices, their states and their results
CREATE TABLE device_commands (
  key bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  id uuid NOT NULL,
  client_key bigint NOT NULL,
  name text NOT NULL,
  payload jsonb,
  bytes integer NOT NULL,
  status text NOT NULL DEFAULT 'queued',
  timeout_ms bigint NOT NULL,
  expires_at timestamptz NOT NULL,
  due_at timestamptz NOT NULL,
  idempotency bytea,
  request_digest bytea,
  created_by uuid,
  created_at timestamptz NOT NULL DEFAULT now(),
  offered_at timestamptz,
  delivered_at timestamptz,
  ended_at timestamptz,
  result jsonb,
  reason text,
  late_at timestamptz,
  late_status text,
  CONSTRAINT device_commands_pkey PRIMARY KEY (key),
  CONSTRAINT device_commands_id_key UNIQUE (id),
  CONSTRAINT device_commands_client_fkey FOREIGN KEY (client_key) REFERENCES clients(key) ON DELETE CASCADE,
  CONSTRAINT device_commands_status_check CHECK (status IN ('queued', 'delivered', 'succeeded', 'failed', 'rejected', 'timed_out', 'expired', 'cancelled')),
  CONSTRAINT device_commands_ended_check CHECK ((ended_at IS NULL) = (status IN ('queued', 'delivered'))),
  CONSTRAINT device_commands_idempotency_check CHECK (num_nulls(idempotency, request_digest) IN (0, 2)),
  CONSTRAINT device_commands_late_check CHECK (num_nulls(late_at, late_status) IN (0, 2))
);
COMMENT ON TABLE device_commands IS 'Commands to clients. The times of a row are its transitions: created, delivered, ended.';
COMMENT ON COLUMN device_commands.key IS 'Internal key, never shown to users; grows with creation.';
COMMENT ON COLUMN device_commands.id IS 'Id that users and devices see.';
COMMENT ON COLUMN device_commands.client_key IS 'The client that carries it out.';
COMMENT ON COLUMN device_commands.name IS 'What to do, in the words of the device.';
COMMENT ON COLUMN device_commands.payload IS 'Parameters for the device; NULL: none.';
COMMENT ON COLUMN device_commands.bytes IS 'Bytes of the payload as JSON text; 0: none.';
COMMENT ON COLUMN device_commands.status IS 'queued and delivered are open; succeeded, failed and rejected are answers; timed_out, expired and cancelled ended without one.';
COMMENT ON COLUMN device_commands.timeout_ms IS 'Milliseconds from the first delivery within which the device answers.';
COMMENT ON COLUMN device_commands.expires_at IS 'When an open command expires, delivered or not.';
COMMENT ON COLUMN device_commands.due_at IS 'When an open command ends without an answer: expires_at, or the end of the timeout before it.';
COMMENT ON COLUMN device_commands.idempotency IS 'SHA-256 of the creator and the Idempotency-Key; NULL: there was none, or it was used again after its time.';
COMMENT ON COLUMN device_commands.request_digest IS 'SHA-256 of the request with that key; NULL: there was none.';
COMMENT ON COLUMN device_commands.created_by IS 'Id of the user who gave it; NULL: Skein did.';
COMMENT ON COLUMN device_commands.created_at IS 'When it was given.';
COMMENT ON COLUMN device_commands.offered_at IS 'When a request of the device last got it; NULL: none did.';
COMMENT ON COLUMN device_commands.delivered_at IS 'When the device first confirmed that it has it; NULL: it did not.';
COMMENT ON COLUMN device_commands.ended_at IS 'When it ended; NULL: it is open.';
COMMENT ON COLUMN device_commands.result IS 'What the device answered; NULL: nothing.';
COMMENT ON COLUMN device_commands.reason IS 'Why it did not succeed, as a sentence; NULL: nothing is known.';
COMMENT ON COLUMN device_commands.late_at IS 'When the first answer after its end came; NULL: none did.';
COMMENT ON COLUMN device_commands.late_status IS 'What that answer said; NULL: none came.';
CREATE INDEX device_commands_page ON device_commands (client_key, key);
CREATE INDEX device_commands_open ON device_commands (client_key, key) WHERE ended_at IS NULL;
CREATE INDEX device_commands_due ON device_commands (due_at) WHERE ended_at IS NULL;
CREATE INDEX device_commands_ended ON device_commands (ended_at) WHERE ended_at IS NOT NULL;
CREATE UNIQUE INDEX device_commands_idempotency_key ON device_commands (client_key, idempotency) WHERE idempotency IS NOT NULL;

CREATE TABLE device_command_bulks (
  key bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  id uuid NOT NULL,
  domain_key bigint NOT NULL,
  name text NOT NULL,
  payload jsonb,
  bytes integer NOT NULL,
  timeout_ms bigint NOT NULL,
  expires_at timestamptz NOT NULL,
  tag text,
  group_id uuid,
  at_once integer NOT NULL,
  per_minute integer,
  stop_percent integer,
  status text NOT NULL DEFAULT 'running',
  reason text,
  created_by uuid NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  next_at timestamptz NOT NULL DEFAULT now(),
  ended_at timestamptz,
  CONSTRAINT device_command_bulks_pkey PRIMARY KEY (key),
  CONSTRAINT device_command_bulks_id_key UNIQUE (id),
  CONSTRAINT device_command_bulks_domain_fkey FOREIGN KEY (domain_key) REFERENCES domains(key) ON DELETE CASCADE,
  CONSTRAINT device_command_bulks_status_check CHECK (status IN ('running', 'stopped', 'cancelled', 'finished')),
  CONSTRAINT device_command_bulks_selection_check CHECK (num_nulls(tag, group_id) = 1)
);
COMMENT ON TABLE device_command_bulks IS 'Commands to many clients, which are given a part at a time.';
COMMENT ON COLUMN device_command_bulks.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN device_command_bulks.id IS 'Id that users see.';
COMMENT ON COLUMN device_command_bulks.domain_key IS 'The domain.';
COMMENT ON COLUMN device_command_bulks.name IS 'Name of each of its commands.';
COMMENT ON COLUMN device_command_bulks.payload IS 'Parameters of each; NULL: none.';
COMMENT ON COLUMN device_command_bulks.bytes IS 'Bytes of the payload as JSON text; 0: none.';
COMMENT ON COLUMN device_command_bulks.timeout_ms IS 'Milliseconds from the first delivery within which each device answers.';
COMMENT ON COLUMN device_command_bulks.expires_at IS 'When each of its commands expires, given or not.';
COMMENT ON COLUMN device_command_bulks.tag IS 'It is for the clients that had this tag; NULL: for those of a group.';
COMMENT ON COLUMN device_command_bulks.group_id IS 'It is for the clients that were in this group; NULL: for those with a tag.';
COMMENT ON COLUMN device_command_bulks.at_once IS 'Number of its commands that are open at a time, at most.';
COMMENT ON COLUMN device_command_bulks.per_minute IS 'Number of its commands that are given per minute, at most; NULL: no limit.';
COMMENT ON COLUMN device_command_bulks.stop_percent IS 'It stops when more of the ended ones have not succeeded, in percent; NULL: it does not.';
COMMENT ON COLUMN device_command_bulks.status IS 'running, or why no more commands are given: stopped for failures, cancelled by a user, finished.';
COMMENT ON COLUMN device_command_bulks.reason IS 'Why it stopped, as a sentence; NULL: it did not.';
COMMENT ON COLUMN device_command_bulks.created_by IS 'Id of the user who gave it.';
COMMENT ON COLUMN device_command_bulks.created_at IS 'When it was given.';
COMMENT ON COLUMN device_command_bulks.next_at IS 'When the next part is given.';
COMMENT ON COLUMN device_command_bulks.ended_at IS 'When its last command had ended; NULL: some have not.';
CREATE INDEX device_command_bulks_page ON device_command_bulks (domain_key, key);
CREATE INDEX device_command_bulks_next ON device_command_bulks (next_at) WHERE ended_at IS NULL;
CREATE INDEX device_command_bulks_ended ON device_command_bulks (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE device_command_targets (
  bulk_key bigint NOT NULL,
  client_key bigint NOT NULL,
  command_key bigint,
  status text NOT NULL DEFAULT 'waiting',
  CONSTRAINT device_command_targets_pkey PRIMARY KEY (bulk_key, client_key),
  CONSTRAINT device_command_targets_bulk_fkey FOREIGN KEY (bulk_key) REFERENCES device_command_bulks(key) ON DELETE CASCADE,
  CONSTRAINT device_command_targets_client_fkey FOREIGN KEY (client_key) REFERENCES clients(key) ON DELETE CASCADE,
  CONSTRAINT device_command_targets_status_check CHECK (status IN ('waiting', 'open', 'refused', 'succeeded', 'failed', 'rejected', 'timed_out', 'expired', 'cancelled'))
);
COMMENT ON TABLE device_command_targets IS 'The clients of commands to many.';
COMMENT ON COLUMN device_command_targets.bulk_key IS 'The commands to many.';
COMMENT ON COLUMN device_command_targets.client_key IS 'The client.';
COMMENT ON COLUMN device_command_targets.command_key IS 'Key of its command, which may be removed since; NULL: none was given.';
COMMENT ON COLUMN device_command_targets.status IS 'waiting: no command was given; open: one was; refused: the client had too many open commands; otherwise how it ended.';
CREATE INDEX device_command_targets_status ON device_command_targets (bulk_key, status, client_key);
CREATE INDEX device_command_targets_client ON device_command_targets (client_key);
