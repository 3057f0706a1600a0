-- expand: tasks, their runs, the workers that execute them and the modules that are executed

-- Rises at each assignment of a run, over all managers; stored with the run before the assignment is sent. No CACHE:
-- a block kept by one manager would let a later assignment carry a lower number.
CREATE SEQUENCE fence AS bigint;

-- A WebAssembly module by the digest of its bytes, read once: what it exports and imports never changes.
CREATE TABLE modules (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT modules_pkey PRIMARY KEY,
  digest text NOT NULL CONSTRAINT modules_digest_key UNIQUE
    CONSTRAINT modules_digest_check CHECK (digest ~ '^sha256:[0-9a-f]{64}$'),
  size_bytes bigint NOT NULL,
  -- core or component
  kind text NOT NULL CONSTRAINT modules_kind_check CHECK (kind IN ('core', 'component')),
  -- what a worker must offer to run it: core, wasi-preview1, component
  runtime text NOT NULL,
  exports jsonb NOT NULL,
  imports jsonb NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);

-- The bytes of an uploaded module in parts of 256 KiB, so that every manager serves them and none holds one whole.
CREATE TABLE module_chunks (
  module_key bigint NOT NULL
    CONSTRAINT module_chunks_module_fkey REFERENCES modules (key) ON DELETE CASCADE,
  chunk integer NOT NULL,
  data bytea NOT NULL,
  CONSTRAINT module_chunks_pkey PRIMARY KEY (module_key, chunk)
);
-- Modules hardly compress, and parts are read whole.
ALTER TABLE module_chunks ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE workers (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT workers_pkey PRIMARY KEY,
  id uuid NOT NULL CONSTRAINT workers_id_key UNIQUE,
  -- NULL: a worker of the platform; else it runs tasks of this domain only
  domain_key bigint CONSTRAINT workers_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  domain_id uuid,
  name text NOT NULL,
  -- SHA-256 of the secret that the registration gave
  secret_hash bytea NOT NULL,
  boot_id text NOT NULL,
  version text NOT NULL,
  labels jsonb NOT NULL,
  os text NOT NULL,
  arch text NOT NULL,
  cpu_cores integer NOT NULL,
  memory_bytes bigint NOT NULL,
  slots integer NOT NULL,
  backlog integer NOT NULL,
  runtimes text[] NOT NULL,
  draining boolean NOT NULL DEFAULT false,
  -- rises at every registration and when the worker is declared dead; whoever writes under an older one is void
  session_epoch bigint NOT NULL,
  -- the manager that holds its session; NULL: declared dead, nothing is assigned to it
  manager_id text,
  lease_until timestamptz NOT NULL,
  last_alive_at timestamptz NOT NULL,
  -- the last ten signs of life, the newest last
  alive_history timestamptz[] NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX workers_domain ON workers (domain_key) WHERE domain_key IS NOT NULL;
-- Who is to be declared dead.
CREATE INDEX workers_lease ON workers (lease_until) WHERE manager_id IS NOT NULL;

-- Join tokens by the SHA-256 of their secret.
CREATE TABLE worker_tokens (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT worker_tokens_pkey PRIMARY KEY,
  token_hash bytea NOT NULL CONSTRAINT worker_tokens_hash_key UNIQUE,
  -- NULL: workers of the platform
  domain_key bigint CONSTRAINT worker_tokens_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  domain_id uuid,
  -- NULL: never
  expires_at timestamptz,
  -- NULL: any number
  uses_left integer CONSTRAINT worker_tokens_uses_check CHECK (uses_left >= 0),
  created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE tasks (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT tasks_pkey PRIMARY KEY,
  id uuid NOT NULL CONSTRAINT tasks_id_key UNIQUE,
  -- NULL: made without a principal (authorisation off). It never changes, nor does the domain's id.
  domain_key bigint CONSTRAINT tasks_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  domain_id uuid,
  -- the user it acts as
  user_key bigint CONSTRAINT tasks_user_fkey REFERENCES users (key) ON DELETE SET NULL,
  name text NOT NULL,
  -- 0 pending 1 scheduled 2 running 3 completed 4 failed 5 skipped 6 stopped 7 unknown
  state smallint NOT NULL DEFAULT 0 CONSTRAINT tasks_state_check CHECK (state BETWEEN 0 AND 7),
  inputs json NOT NULL,
  cli_args json,
  env json NOT NULL,
  image_url text,
  module_key bigint CONSTRAINT tasks_module_fkey REFERENCES modules (key),
  function text,
  labels jsonb NOT NULL,
  worker_id uuid,
  priority smallint NOT NULL CONSTRAINT tasks_priority_check CHECK (priority BETWEEN 0 AND 100),
  timeout_ms bigint NOT NULL,
  memory_limit_bytes bigint NOT NULL,
  -- NULL: the default of the reason it failed for
  max_attempts smallint,
  backoff_ms bigint NOT NULL,
  on_lost text NOT NULL CONSTRAINT tasks_on_lost_check CHECK (on_lost IN ('requeue', 'fail', 'wait')),
  metadata jsonb NOT NULL,
  -- the run that the last start made; its result is the task's. No reference: the run refers to the task.
  run_key bigint,
  start_time timestamptz,
  finish_time timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz,
  -- A task is under way only through a run, and that run carries the deadline (runs_deadline_check).
  CONSTRAINT tasks_run_check CHECK (state NOT IN (1, 2, 7) OR run_key IS NOT NULL),
  CONSTRAINT tasks_source_check CHECK (image_url IS NULL OR module_key IS NULL)
);
CREATE INDEX tasks_domain ON tasks (domain_key, key);
CREATE INDEX tasks_module ON tasks (module_key) WHERE module_key IS NOT NULL;

-- What a run asks of a worker (pin, labels, runtime, memory class, domain), once per combination.
CREATE TABLE run_needs (
  hash text CONSTRAINT run_needs_pkey PRIMARY KEY,
  definition jsonb NOT NULL
);

-- One row per run, holding its present attempt; earlier attempts stand in run_attempts. Three writes in the life of an
-- ordinary run: insert, running, result. No index has state in it, so that "running" stays within the page.
CREATE TABLE runs (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT runs_pkey PRIMARY KEY,
  id uuid NOT NULL CONSTRAINT runs_id_key UNIQUE,
  task_key bigint NOT NULL CONSTRAINT runs_task_fkey REFERENCES tasks (key) ON DELETE CASCADE,
  -- true: made by start, the task's state follows it; false: made by invoke
  drives_task boolean NOT NULL,
  state smallint NOT NULL CONSTRAINT runs_state_check CHECK (state BETWEEN 1 AND 7),
  -- everything an assignment needs, frozen at the start: a later edit of the task changes nothing here
  spec json NOT NULL,
  module_digest text NOT NULL,
  needs text NOT NULL,
  priority smallint NOT NULL,
  -- counted from 1; what costs no attempt keeps it
  attempt integer NOT NULL DEFAULT 1,
  -- of the present assignment; NULL before the first
  fence bigint,
  worker_key bigint,
  -- place in the queue while it waits for a worker; NULL: assigned, waiting for its backoff, or ended
  queue_seq bigint,
  -- when somebody must look at it again; NULL: ended
  next_check_at timestamptz,
  -- how often nobody could be found, for the backoff of next_check_at
  checks smallint NOT NULL DEFAULT 0,
  cancel_requested_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  assigned_at timestamptz,
  running_at timestamptz,
  finished_at timestamptz,
  duration_ms double precision,
  prepare_ms double precision,
  reason text,
  error text,
  results json,
  -- digest and size of a result that is too large for the row: its bytes are in staged_results
  result_digest text,
  result_bytes bigint,
  output_truncated boolean NOT NULL DEFAULT false,
  -- Nothing rests in scheduled, running or unknown without a deadline.
  CONSTRAINT runs_deadline_check CHECK ((state IN (1, 2, 7)) = (next_check_at IS NOT NULL)),
  CONSTRAINT runs_assigned_check CHECK ((worker_key IS NULL) OR (fence IS NOT NULL)),
  CONSTRAINT runs_queue_check CHECK (queue_seq IS NULL OR (worker_key IS NULL AND state = 1))
) WITH (fillfactor = 80);
-- The queue, as claimed: per need, by priority, then by age. queue_seq is set exactly while state = 1 and no worker has it.
CREATE INDEX runs_queue ON runs (needs, priority DESC, queue_seq) WHERE queue_seq IS NOT NULL;
CREATE INDEX runs_due ON runs (next_check_at) WHERE next_check_at IS NOT NULL;
CREATE INDEX runs_held ON runs (worker_key) WHERE next_check_at IS NOT NULL;
-- What a manager must tell a worker to stop, whoever was asked for it.
CREATE INDEX runs_cancelled ON runs (worker_key) WHERE cancel_requested_at IS NOT NULL AND next_check_at IS NOT NULL;
CREATE INDEX runs_task ON runs (task_key, key);
CREATE INDEX runs_staged ON runs (result_digest) WHERE result_digest IS NOT NULL;

-- Attempts that ended without ending the run.
CREATE TABLE run_attempts (
  run_key bigint NOT NULL CONSTRAINT run_attempts_run_fkey REFERENCES runs (key) ON DELETE CASCADE,
  fence bigint NOT NULL,
  attempt integer NOT NULL,
  worker_key bigint,
  assigned_at timestamptz,
  running_at timestamptz,
  ended_at timestamptz NOT NULL DEFAULT now(),
  reason text NOT NULL,
  error text,
  CONSTRAINT run_attempts_pkey PRIMARY KEY (run_key, fence)
);

-- Parts of results above 256 KiB, staged by digest before the result names them.
CREATE TABLE staged_results (
  digest text NOT NULL,
  byte_offset bigint NOT NULL,
  data bytea NOT NULL,
  staged_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT staged_results_pkey PRIMARY KEY (digest, byte_offset)
);

-- Output of runs as it came, bounded per run and stream by the manager.
CREATE TABLE run_logs (
  run_key bigint NOT NULL CONSTRAINT run_logs_run_fkey REFERENCES runs (key) ON DELETE CASCADE,
  -- 1 stdout, 2 stderr
  stream smallint NOT NULL CONSTRAINT run_logs_stream_check CHECK (stream IN (1, 2)),
  byte_offset bigint NOT NULL,
  data bytea NOT NULL,
  truncated boolean NOT NULL,
  CONSTRAINT run_logs_pkey PRIMARY KEY (run_key, stream, byte_offset)
);

-- Idempotency-Key of start: kept 24 h, one run per key; the same key with another body is refused.
CREATE TABLE run_start_keys (
  task_key bigint NOT NULL CONSTRAINT run_start_keys_task_fkey REFERENCES tasks (key) ON DELETE CASCADE,
  -- 0: no principal
  user_key bigint NOT NULL,
  idempotency_key text NOT NULL,
  body_digest text NOT NULL,
  run_id uuid NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT run_start_keys_pkey PRIMARY KEY (task_key, user_key, idempotency_key)
);
CREATE INDEX run_start_keys_age ON run_start_keys (created_at);
