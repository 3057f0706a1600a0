-- expand: the isolation of guests that each worker reports, and whether it runs the tasks of tenants

ALTER TABLE workers
  -- namespace, uid or process; empty: a worker of an earlier version, which does not report it.
  ADD COLUMN isolation text NOT NULL DEFAULT '',
  -- Its guests share a user with the platform's own files, and the platform is reachable from other machines.
  ADD COLUMN platform_only boolean NOT NULL DEFAULT false;
