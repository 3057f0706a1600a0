-- expand: HTTP requests that tasks grant to their guests
ALTER TABLE tasks ADD COLUMN http json;
COMMENT ON COLUMN tasks.http IS 'The HTTP requests that its runs can send; NULL: none.';

-- A manager before this drops such output.
ALTER TABLE run_logs DROP CONSTRAINT run_logs_stream_check, ADD CONSTRAINT run_logs_stream_check CHECK (stream IN (1, 2, 3)) NOT VALID;
ALTER TABLE run_logs VALIDATE CONSTRAINT run_logs_stream_check;
COMMENT ON COLUMN run_logs.stream IS '1 stdout, 2 stderr, 3 HTTP requests of the run.';
