-- expand: tasks that answer commands instead of clients
ALTER TABLE tasks ADD COLUMN answers json;
COMMENT ON COLUMN tasks.answers IS 'The commands to clients that it answers instead of them; NULL: none.';
CREATE INDEX tasks_answers ON tasks (domain_key, (answers ->> 'command'), key) WHERE answers IS NOT NULL;

ALTER TABLE device_commands ADD COLUMN task_id uuid;
COMMENT ON COLUMN device_commands.task_id IS 'Id of the task that answers it instead of the client; NULL: the client does.';

CREATE TABLE command_runs (
  command_key bigint NOT NULL,
  task_id uuid NOT NULL,
  domain_key bigint NOT NULL,
  due_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT command_runs_pkey PRIMARY KEY (command_key),
  CONSTRAINT command_runs_command_fkey FOREIGN KEY (command_key) REFERENCES device_commands(key) ON DELETE CASCADE
) WITH (fillfactor = 80);
COMMENT ON TABLE command_runs IS 'Commands that tasks answer, until the command and its run have ended.';
COMMENT ON COLUMN command_runs.command_key IS 'The command. Its run has the same id.';
COMMENT ON COLUMN command_runs.task_id IS 'Id of the task, which may be deleted since.';
COMMENT ON COLUMN command_runs.domain_key IS 'The domain of both. Domains take turns.';
COMMENT ON COLUMN command_runs.due_at IS 'When a task manager looks at it next.';
CREATE INDEX command_runs_due ON command_runs (due_at, command_key);
CREATE INDEX command_runs_task ON command_runs (task_id);
