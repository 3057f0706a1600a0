-- expand: a trigger can take several messages in one run and in order, and what a guest publishes waits for the end of its run
ALTER TABLE task_triggers ADD COLUMN batch smallint, ADD COLUMN ordering text,
  ADD CONSTRAINT task_triggers_batch_check CHECK (batch BETWEEN 1 AND 500),
  ADD CONSTRAINT task_triggers_ordering_check CHECK (ordering IN ('client', 'channel', 'none'));
COMMENT ON COLUMN task_triggers.batch IS 'Largest number of messages that one run gets as a list; NULL: one, which is not a list.';
COMMENT ON COLUMN task_triggers.ordering IS 'Which messages run one after another: those of one client, all, or none; NULL: none.';

ALTER TABLE task_messages ADD COLUMN lane text, ADD COLUMN batch_limit smallint, ADD COLUMN next_record integer NOT NULL DEFAULT 0,
  ADD COLUMN run_id uuid, ADD COLUMN check_at timestamptz;
COMMENT ON COLUMN task_messages.lane IS 'Publisher of a message that runs in a batch or in order: it is kept until its run has ended, and is due at infinity; NULL: its run keeps it.';
COMMENT ON COLUMN task_messages.batch_limit IS 'Largest batch that may contain it, after a larger one failed; NULL: that of the trigger.';
COMMENT ON COLUMN task_messages.next_record IS 'Number of the record that runs next, where each record of an ordered message runs.';
COMMENT ON COLUMN task_messages.run_id IS 'Run that has it; NULL: none.';
COMMENT ON COLUMN task_messages.check_at IS 'When its run is looked for, if nothing was heard of it; on one message of each run.';
CREATE INDEX task_messages_waiting ON task_messages (task_key, key) WHERE lane IS NOT NULL AND run_id IS NULL AND refused_at IS NULL;
CREATE INDEX task_messages_run ON task_messages (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX task_messages_check ON task_messages (check_at) WHERE check_at IS NOT NULL;

CREATE TABLE held_publications (
  run_id uuid NOT NULL,
  fence bigint NOT NULL,
  call_id bigint NOT NULL,
  domain_key bigint NOT NULL,
  user_key bigint NOT NULL,
  channel_id uuid NOT NULL,
  subtopic text NOT NULL,
  payload text NOT NULL,
  task_key bigint NOT NULL,
  traceparent text,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT held_publications_pkey PRIMARY KEY (run_id, fence, call_id),
  CONSTRAINT held_publications_domain_fkey FOREIGN KEY (domain_key) REFERENCES domains(key) ON DELETE CASCADE,
  CONSTRAINT held_publications_user_fkey FOREIGN KEY (user_key) REFERENCES users(key) ON DELETE CASCADE
);
CREATE INDEX held_publications_domain ON held_publications (domain_key);
CREATE INDEX held_publications_user ON held_publications (user_key);
COMMENT ON TABLE held_publications IS 'What guests publish in runs that a message caused, until the run has ended: then it moves to task_publications, or is deleted if the run did not complete.';
COMMENT ON COLUMN held_publications.run_id IS 'As in task_publications.';
COMMENT ON COLUMN held_publications.fence IS 'As in task_publications. A run that is executed again has another one.';
COMMENT ON COLUMN held_publications.call_id IS 'As in task_publications.';
COMMENT ON COLUMN held_publications.domain_key IS 'As in task_publications.';
COMMENT ON COLUMN held_publications.user_key IS 'As in task_publications.';
COMMENT ON COLUMN held_publications.channel_id IS 'As in task_publications.';
COMMENT ON COLUMN held_publications.subtopic IS 'As in task_publications.';
COMMENT ON COLUMN held_publications.payload IS 'As in task_publications.';
COMMENT ON COLUMN held_publications.task_key IS 'As in task_publications.';
COMMENT ON COLUMN held_publications.traceparent IS 'As in task_publications.';
COMMENT ON COLUMN held_publications.created_at IS 'When the guest published it.';
