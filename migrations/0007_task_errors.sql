-- expand: what was refused outside of a request stays visible until the next success
CREATE TABLE task_errors (
  task_key bigint NOT NULL CONSTRAINT task_errors_task_fkey REFERENCES tasks (key) ON DELETE CASCADE,
  source text NOT NULL CONSTRAINT task_errors_source_check CHECK (source IN ('schedule', 'message', 'workflow', 'publication', 'replay', 'right')),
  at timestamptz NOT NULL DEFAULT now(),
  reason text NOT NULL,
  count bigint NOT NULL,
  needs_action boolean NOT NULL,
  CONSTRAINT task_errors_pkey PRIMARY KEY (task_key, source)
);
COMMENT ON TABLE task_errors IS 'What a task was refused outside of a request, one row per source since the last success of that source, which removes the row.';
COMMENT ON COLUMN task_errors.task_key IS 'The task.';
COMMENT ON COLUMN task_errors.source IS 'What was refused: a start of its schedule, of a message or of its workflow, a publication, the rest of a replay, or a right that its grantor has lost.';
COMMENT ON COLUMN task_errors.at IS 'When it was last refused.';
COMMENT ON COLUMN task_errors.reason IS 'Why it was last refused, as a sentence.';
COMMENT ON COLUMN task_errors.count IS 'Number of refusals.';
COMMENT ON COLUMN task_errors.needs_action IS 'Whether it stays refused until a person changes something.';
