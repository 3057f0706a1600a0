-- expand: tasks whose worker starts them by its own clock
ALTER TABLE tasks ADD COLUMN offline boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN tasks.offline IS 'Whether the worker of the task starts the ticks of its schedule.';
CREATE INDEX tasks_offline ON tasks (worker_id, key) WHERE offline;

ALTER TABLE runs ADD COLUMN ran_offline boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN runs.ran_offline IS 'Whether its worker started it without a task manager, and reported it afterwards.';

CREATE TABLE offline_tasks (
  task_key bigint NOT NULL,
  worker_key bigint NOT NULL,
  fence bigint NOT NULL,
  task_version timestamp with time zone NOT NULL,
  first_tick_at timestamp with time zone NOT NULL,
  spec json NOT NULL,
  module_digest text NOT NULL,
  needs text NOT NULL,
  granted_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT offline_tasks_pkey PRIMARY KEY (task_key),
  CONSTRAINT offline_tasks_task_fkey FOREIGN KEY (task_key) REFERENCES tasks (key) ON DELETE CASCADE,
  CONSTRAINT offline_tasks_worker_fkey FOREIGN KEY (worker_key) REFERENCES workers (key) ON DELETE CASCADE
);
COMMENT ON TABLE offline_tasks IS 'Tasks whose ticks a worker starts. A change of the task voids its row: no task manager that changes tasks needs to know the table.';
COMMENT ON COLUMN offline_tasks.task_key IS 'The task, whose next_tick_at is NULL meanwhile.';
COMMENT ON COLUMN offline_tasks.worker_key IS 'The worker.';
COMMENT ON COLUMN offline_tasks.fence IS 'Fence of all of these runs.';
COMMENT ON COLUMN offline_tasks.task_version IS 'When the task was last changed, or created: another time there voids the row.';
COMMENT ON COLUMN offline_tasks.first_tick_at IS 'The worker starts ticks at or after this time.';
COMMENT ON COLUMN offline_tasks.spec IS 'The spec of each run, as in runs.';
COMMENT ON COLUMN offline_tasks.module_digest IS 'Digest of the module.';
COMMENT ON COLUMN offline_tasks.needs IS 'As in runs.';
COMMENT ON COLUMN offline_tasks.granted_at IS 'When the worker took over.';
CREATE INDEX offline_tasks_worker ON offline_tasks (worker_key);
