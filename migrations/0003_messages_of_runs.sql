-- expand: the messages that a run of a task published are found by the run
ALTER TABLE ingest_batches ADD COLUMN task_runs uuid[];
COMMENT ON COLUMN ingest_batches.task_runs IS 'Runs of tasks that published messages of the batch; which of them did is in envelopes. NULL: none.';
-- Names of fields are not escaped in JSON, quotation marks in its texts are, so the text of a publisher cannot match.
UPDATE ingest_batches b
   SET task_runs = ARRAY(SELECT DISTINCT found[1]::uuid FROM regexp_matches(b.envelopes, '"run":\{"id":"([0-9a-f-]{36})"', 'g') found)
 WHERE b.envelopes LIKE '%"run":{"id":"%';
-- Batches without a run are not in the index, so it costs them nothing.
CREATE INDEX ingest_batches_task_runs ON ingest_batches USING gin (task_runs) WHERE (task_runs IS NOT NULL);
