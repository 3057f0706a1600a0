-- expand: a run that fits no worker ends, and a dropped tick is counted
ALTER TABLE tasks ADD COLUMN queue_timeout_ms bigint NOT NULL DEFAULT 86400000,
  ADD COLUMN missed_ticks bigint NOT NULL DEFAULT 0,
  ADD CONSTRAINT tasks_queue_timeout_check CHECK (queue_timeout_ms BETWEEN 1 AND 2592000000);
COMMENT ON COLUMN tasks.queue_timeout_ms IS 'How long a run waits for a worker that fits before it fails, in milliseconds.';
COMMENT ON COLUMN tasks.missed_ticks IS 'Number of times of its schedules that started no run; of a long downtime at most a minute of seconds.';
-- An advance of a workflow reads the steps that are started, not all of them.
CREATE INDEX workflow_steps_started ON workflow_steps (workflow_run_key) WHERE state = 1;
