-- expand: schedules, workflows, triggers and what they remember

-- What a task asks beyond a single run. The definitions are kept as they were given; what is looked up stands in columns
-- and tables of its own.
ALTER TABLE tasks
  ADD COLUMN broadcast boolean NOT NULL DEFAULT false,
  ADD COLUMN daemon boolean NOT NULL DEFAULT false,
  -- cron expression; NULL: none
  ADD COLUMN schedule text,
  ADD COLUMN timezone text NOT NULL DEFAULT 'UTC',
  -- what follows ticks that passed while no manager ran
  ADD COLUMN catch_up text NOT NULL DEFAULT 'none' CONSTRAINT tasks_catch_up_check CHECK (catch_up IN ('none', 'once')),
  ADD COLUMN next_tick_at timestamptz,
  ADD COLUMN trigger json,
  ADD COLUMN publish_result json,
  ADD COLUMN grants json NOT NULL DEFAULT '[]',
  -- names and values as sealed JSON; NULL: none
  ADD COLUMN secrets bytea,
  ADD COLUMN secret_names text[] NOT NULL DEFAULT '{}',
  ADD COLUMN depends_on text[] NOT NULL DEFAULT '{}',
  ADD COLUMN run_if text NOT NULL DEFAULT 'success'
    CONSTRAINT tasks_run_if_check CHECK (run_if IN ('success', 'failure', 'always')),
  ADD COLUMN workflow_key bigint,
  ADD CONSTRAINT tasks_tick_check CHECK (next_tick_at IS NULL OR schedule IS NOT NULL);
CREATE INDEX tasks_tick ON tasks (next_tick_at) WHERE next_tick_at IS NOT NULL;

-- Several tasks that depend on each other. A workflow's tasks are started by it, one run of all of them at a time.
CREATE TABLE workflows (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT workflows_pkey PRIMARY KEY,
  id uuid NOT NULL CONSTRAINT workflows_id_key UNIQUE,
  domain_key bigint CONSTRAINT workflows_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  domain_id uuid,
  name text NOT NULL,
  metadata jsonb NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX workflows_domain ON workflows (domain_key, key);

ALTER TABLE tasks
  ADD CONSTRAINT tasks_workflow_fkey FOREIGN KEY (workflow_key) REFERENCES workflows (key) ON DELETE CASCADE;
-- Within a workflow tasks are told apart by their names.
CREATE UNIQUE INDEX tasks_workflow_name ON tasks (workflow_key, name) WHERE workflow_key IS NOT NULL;

CREATE TABLE workflow_runs (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT workflow_runs_pkey PRIMARY KEY,
  id uuid NOT NULL CONSTRAINT workflow_runs_id_key UNIQUE,
  workflow_key bigint NOT NULL CONSTRAINT workflow_runs_workflow_fkey REFERENCES workflows (key) ON DELETE CASCADE,
  -- as of tasks: 2 running, 3 completed, 4 failed, 6 stopped
  state smallint NOT NULL CONSTRAINT workflow_runs_state_check CHECK (state IN (2, 3, 4, 6)),
  -- when somebody must look at it again; NULL: ended
  next_check_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  finished_at timestamptz,
  CONSTRAINT workflow_runs_deadline_check CHECK ((state = 2) = (next_check_at IS NOT NULL))
);
CREATE INDEX workflow_runs_workflow ON workflow_runs (workflow_key, key);
CREATE INDEX workflow_runs_due ON workflow_runs (next_check_at) WHERE next_check_at IS NOT NULL;
-- One at a time, promised by the database.
CREATE UNIQUE INDEX workflow_runs_open ON workflow_runs (workflow_key) WHERE next_check_at IS NOT NULL;

CREATE TABLE workflow_steps (
  workflow_run_key bigint NOT NULL
    CONSTRAINT workflow_steps_run_fkey REFERENCES workflow_runs (key) ON DELETE CASCADE,
  task_key bigint NOT NULL CONSTRAINT workflow_steps_task_fkey REFERENCES tasks (key) ON DELETE CASCADE,
  -- as of tasks: 0 waits for its parents, 1 its run was started, 3 to 6 how it ended
  state smallint NOT NULL DEFAULT 0,
  -- made before the run is started, so that whoever repeats the start starts nothing twice
  run_id uuid NOT NULL,
  error text,
  CONSTRAINT workflow_steps_pkey PRIMARY KEY (workflow_run_key, task_key)
);
CREATE INDEX workflow_steps_task ON workflow_steps (task_key);

-- A broadcast is one run that no worker gets and one run per worker below it.
ALTER TABLE runs
  ADD COLUMN parent_id uuid,
  ADD COLUMN is_group boolean NOT NULL DEFAULT false;
CREATE INDEX runs_parent ON runs (parent_id) WHERE parent_id IS NOT NULL;

-- Which messages start which task, and what became of those that did not.
CREATE TABLE task_triggers (
  task_key bigint CONSTRAINT task_triggers_pkey PRIMARY KEY
    CONSTRAINT task_triggers_task_fkey REFERENCES tasks (key) ON DELETE CASCADE,
  channel_key bigint NOT NULL CONSTRAINT task_triggers_channel_fkey REFERENCES channels (key) ON DELETE CASCADE,
  -- this subtopic and what lies below it; empty: all
  subtopic text NOT NULL,
  -- records of this name; NULL: all
  name text,
  comparator text CONSTRAINT task_triggers_comparator_check CHECK (comparator IN ('eq', 'lt', 'le', 'gt', 'ge')),
  value double precision,
  debounce_ms bigint,
  rate_count integer,
  rate_ms bigint,
  window_at timestamptz,
  window_count integer NOT NULL DEFAULT 0,
  matched bigint NOT NULL DEFAULT 0,
  dropped bigint NOT NULL DEFAULT 0,
  dropped_reason text,
  last_match_at timestamptz,
  CONSTRAINT task_triggers_when_check CHECK ((comparator IS NULL) = (value IS NULL)),
  CONSTRAINT task_triggers_rate_check CHECK ((rate_count IS NULL) = (rate_ms IS NULL))
);
CREATE INDEX task_triggers_channel ON task_triggers (channel_key);

-- Messages that are to start a run: written with the position of the message log, taken by any manager.
CREATE TABLE task_messages (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT task_messages_pkey PRIMARY KEY,
  task_key bigint NOT NULL CONSTRAINT task_messages_task_fkey REFERENCES tasks (key) ON DELETE CASCADE,
  -- the message, or the page of a replay: the same one starts one run
  origin text NOT NULL,
  -- {channel_id, subtopic, publisher, protocol, records}
  message json NOT NULL,
  due_at timestamptz NOT NULL DEFAULT now(),
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT task_messages_origin_key UNIQUE (task_key, origin)
);
CREATE INDEX task_messages_due ON task_messages (due_at, key);

-- Messages of tasks on their way to their channels: written in the transaction of what they report, taken by any node
-- of the platform, which stores each once under (run, fence, call).
CREATE TABLE task_publications (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT task_publications_pkey PRIMARY KEY,
  domain_key bigint NOT NULL CONSTRAINT task_publications_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  -- as whom it is published
  user_key bigint NOT NULL CONSTRAINT task_publications_user_fkey REFERENCES users (key) ON DELETE CASCADE,
  channel_id uuid NOT NULL,
  subtopic text NOT NULL,
  -- a SenML pack
  payload text NOT NULL,
  task_key bigint NOT NULL,
  run_id uuid NOT NULL,
  fence bigint NOT NULL,
  -- 0: the result of the run; else the number of the guest's call
  call_id bigint NOT NULL,
  tries smallint NOT NULL DEFAULT 0,
  due_at timestamptz NOT NULL DEFAULT now(),
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT task_publications_call_key UNIQUE (run_id, fence, call_id)
);
CREATE INDEX task_publications_due ON task_publications (due_at, key);
CREATE INDEX task_publications_domain ON task_publications (domain_key);
CREATE INDEX task_publications_user ON task_publications (user_key);

-- Stored messages that a task is to run over.
CREATE TABLE task_replays (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT task_replays_pkey PRIMARY KEY,
  id uuid NOT NULL CONSTRAINT task_replays_id_key UNIQUE,
  task_key bigint NOT NULL CONSTRAINT task_replays_task_fkey REFERENCES tasks (key) ON DELETE CASCADE,
  -- whose rights count
  user_key bigint NOT NULL CONSTRAINT task_replays_user_fkey REFERENCES users (key) ON DELETE CASCADE,
  channel_id uuid NOT NULL,
  from_time double precision NOT NULL,
  to_time double precision NOT NULL,
  next_offset bigint NOT NULL DEFAULT 0,
  due_at timestamptz NOT NULL DEFAULT now(),
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX task_replays_due ON task_replays (due_at, key);
CREATE INDEX task_replays_task ON task_replays (task_key);
CREATE INDEX task_replays_user ON task_replays (user_key);

-- Every change of state, one row per transaction of a run writer: what `/events` follows.
CREATE TABLE task_events (
  seq bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT task_events_pkey PRIMARY KEY,
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  occurred_at timestamptz NOT NULL DEFAULT now(),
  events json NOT NULL
);
CREATE INDEX task_events_position ON task_events (xid, seq);
