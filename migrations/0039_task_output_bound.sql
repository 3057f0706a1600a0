-- expand: a task says how much of the output of its runs is kept

ALTER TABLE tasks
  -- of stdout and of stderr, each
  ADD COLUMN max_output_bytes integer NOT NULL DEFAULT 1048576
    CONSTRAINT tasks_max_output_bytes_check CHECK (max_output_bytes BETWEEN 1024 AND 16777216);
