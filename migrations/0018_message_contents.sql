-- expand: a large message that starts runs is stored once, and its runs refer to it
CREATE TABLE message_contents (
  key bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  digest text NOT NULL,
  content json NOT NULL,
  used_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT message_contents_pkey PRIMARY KEY (key),
  CONSTRAINT message_contents_digest_key UNIQUE (digest)
);
CREATE INDEX message_contents_used ON message_contents (used_at);
COMMENT ON TABLE message_contents IS 'Large messages that start runs, each once for all of its triggers and runs. Removed when no waiting message and no open run refers to it.';
COMMENT ON COLUMN message_contents.key IS 'Internal key.';
COMMENT ON COLUMN message_contents.digest IS 'SHA-256 of the content, as sha256:<hex>.';
COMMENT ON COLUMN message_contents.content IS 'The message, as in task_messages.message.';
COMMENT ON COLUMN message_contents.used_at IS 'When a trigger last referred to it.';

ALTER TABLE task_messages ADD COLUMN content_key bigint, ADD COLUMN content_bytes integer,
  ADD CONSTRAINT task_messages_content_fkey FOREIGN KEY (content_key) REFERENCES message_contents(key),
  ADD CONSTRAINT task_messages_content_check CHECK (num_nulls(content_key, content_bytes) IN (0, 2));
CREATE INDEX task_messages_content ON task_messages (content_key) WHERE content_key IS NOT NULL;
COMMENT ON COLUMN task_messages.content_key IS 'Where its content is, if it is large: message has only what is small of it, with the number of its records.';
COMMENT ON COLUMN task_messages.content_bytes IS 'Size of that content as JSON, in bytes.';

CREATE TABLE run_contents (
  run_key bigint NOT NULL,
  content_key bigint NOT NULL,
  CONSTRAINT run_contents_pkey PRIMARY KEY (run_key),
  CONSTRAINT run_contents_content_fkey FOREIGN KEY (content_key) REFERENCES message_contents(key)
);
CREATE INDEX run_contents_content ON run_contents (content_key);
COMMENT ON TABLE run_contents IS 'Which large message an open run refers to. Messages of a batch are kept in task_messages instead. Removed some time after the run has ended.';
COMMENT ON COLUMN run_contents.run_key IS 'The run; it may be deleted.';
COMMENT ON COLUMN run_contents.content_key IS 'The message.';
