-- expand: tasks that answer commands instead of clients
ALTER TABLE tasks ADD COLUMN answers json;
COMMENT ON COLUMN tasks.answers IS 'The commands to clients that it answers instead of them; NULL: none.';
CREATE INDEX tasks_answers ON tasks (domain_key, (answers ->> 'command'), (answers ->> 'client_id'), key) WHERE answers IS NOT NULL;

ALTER TABLE device_commands ADD COLUMN task_id uuid;
COMMENT ON COLUMN device_commands.task_id IS 'Id of the task that answers it instead of the client; NULL: the client does.';

CREATE TABLE command_runs (
  command_key bigint NOT NULL,
  command_id uuid NOT NULL,
  task_id uuid NOT NULL,
  domain_key bigint NOT NULL,
  due_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT command_runs_pkey PRIMARY KEY (command_key)
) WITH (fillfactor = 80);
COMMENT ON TABLE command_runs IS 'Commands that tasks answer, until the command and its run have ended.';
COMMENT ON COLUMN command_runs.command_key IS 'The command, which may be deleted since, with its client.';
COMMENT ON COLUMN command_runs.command_id IS 'Id of the command, and of its run.';
COMMENT ON COLUMN command_runs.task_id IS 'Id of the task, which may be deleted since.';
COMMENT ON COLUMN command_runs.domain_key IS 'The domain of both. Domains take turns.';
COMMENT ON COLUMN command_runs.due_at IS 'When a task manager looks at it next.';
CREATE INDEX command_runs_due ON command_runs (due_at, command_key);
CREATE INDEX command_runs_task ON command_runs (task_id);
