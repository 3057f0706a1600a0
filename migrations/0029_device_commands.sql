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
