-- expand: rules whose condition is a function of a task, and the calls of these functions
CREATE TABLE rule_calls (
  rule_key bigint NOT NULL,
  domain_key bigint NOT NULL,
  task_id uuid NOT NULL,
  run_id uuid NOT NULL,
  attempt integer NOT NULL DEFAULT 1,
  status text NOT NULL DEFAULT 'open',
  given json NOT NULL,
  samples json NOT NULL,
  results json,
  reason text,
  xid xid8 NOT NULL,
  seq bigint NOT NULL,
  message integer NOT NULL,
  since timestamptz NOT NULL,
  due_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT rule_calls_pkey PRIMARY KEY (rule_key),
  CONSTRAINT rule_calls_rule_key_fkey FOREIGN KEY (rule_key) REFERENCES rules (key) ON DELETE CASCADE,
  CONSTRAINT rule_calls_status_check CHECK (status IN ('open', 'done', 'failed', 'refused'))
) WITH (fillfactor = 80);
COMMENT ON TABLE rule_calls IS 'Calls of functions that decide for rules, until the rule has taken the results. A rule has one at a time.';
COMMENT ON COLUMN rule_calls.rule_key IS 'The rule.';
COMMENT ON COLUMN rule_calls.domain_key IS 'Its domain. Domains take turns.';
COMMENT ON COLUMN rule_calls.task_id IS 'Id of the task, which may be deleted since.';
COMMENT ON COLUMN rule_calls.run_id IS 'Id of the run of this attempt.';
COMMENT ON COLUMN rule_calls.attempt IS 'Number of the attempt, from 1.';
COMMENT ON COLUMN rule_calls.status IS 'open: its run has not ended; done: it has results; failed: it may be tried again; refused: another attempt would fail too.';
COMMENT ON COLUMN rule_calls.given IS 'The messages that the function gets, each with one record.';
COMMENT ON COLUMN rule_calls.samples IS 'What each of them is: batch, number of the message in it, and number of the record in the message.';
COMMENT ON COLUMN rule_calls.results IS 'What the function returned: one item for each message; NULL: nothing yet.';
COMMENT ON COLUMN rule_calls.reason IS 'Why it failed or was refused; NULL: it did not.';
COMMENT ON COLUMN rule_calls.xid IS 'Position of the message at which the rule goes on after it: transaction of its batch.';
COMMENT ON COLUMN rule_calls.seq IS 'The same position: batch.';
COMMENT ON COLUMN rule_calls.message IS 'The same position: number of the message in the batch.';
COMMENT ON COLUMN rule_calls.since IS 'Arrival of its first message.';
COMMENT ON COLUMN rule_calls.due_at IS 'When a task manager looks at it next; infinity: the rule takes the results.';
CREATE INDEX rule_calls_due ON rule_calls (due_at, rule_key);
CREATE INDEX rule_calls_ended ON rule_calls (domain_key) WHERE status <> 'open';
COMMENT ON COLUMN rules.pause_kind IS 'right: a right is lacking, and it goes on when that is back; loop: it caused itself; costly: it took too much time or memory; function: the task that decides failed or was deleted. The last three wait for a change or for enable.';
