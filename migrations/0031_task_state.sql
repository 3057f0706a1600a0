-- expand: what guests keep between runs, written in the transaction of their result
CREATE SEQUENCE task_state_versions;

CREATE TABLE task_state_sizes (
  task_key bigint NOT NULL,
  keys integer NOT NULL DEFAULT 0,
  bytes bigint NOT NULL DEFAULT 0,
  CONSTRAINT task_state_sizes_pkey PRIMARY KEY (task_key),
  CONSTRAINT task_state_sizes_task_fkey FOREIGN KEY (task_key) REFERENCES tasks(key) ON DELETE CASCADE
) WITH (fillfactor = 80);
COMMENT ON TABLE task_state_sizes IS 'How much state a task has. Who writes state of a task locks its row.';
COMMENT ON COLUMN task_state_sizes.task_key IS 'The task.';
COMMENT ON COLUMN task_state_sizes.keys IS 'Number of its keys, in all buckets.';
COMMENT ON COLUMN task_state_sizes.bytes IS 'Bytes of its keys and values.';

CREATE TABLE task_state (
  task_key bigint NOT NULL,
  client text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  value bytea NOT NULL,
  version bigint NOT NULL,
  updated_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT task_state_pkey PRIMARY KEY (task_key, client, name),
  CONSTRAINT task_state_task_fkey FOREIGN KEY (task_key) REFERENCES tasks(key) ON DELETE CASCADE
) WITH (fillfactor = 80);
COMMENT ON TABLE task_state IS 'What guests of a task keep between runs.';
COMMENT ON COLUMN task_state.task_key IS 'The task.';
COMMENT ON COLUMN task_state.client IS 'The publisher whose messages the value belongs to; empty: the bucket of the task.';
COMMENT ON COLUMN task_state.name IS 'The key.';
COMMENT ON COLUMN task_state.value IS 'The value, as the guest wrote it.';
COMMENT ON COLUMN task_state.version IS 'Number of the write: another one, another number.';
COMMENT ON COLUMN task_state.updated_at IS 'When it was written.';
