-- expand: small messages that a trigger gives to a run as a full batch are one row until they are treated otherwise than together
ALTER TABLE task_messages ADD COLUMN packed json, ADD COLUMN packed_count smallint,
  ADD CONSTRAINT task_messages_packed_check CHECK (num_nulls(packed, packed_count) IN (0, 2));
COMMENT ON COLUMN task_messages.packed IS 'Several messages of one run, as a list of {origin, message, traceparent}; the row is one of them in nothing else. They become rows of their own when their run has not completed. NULL: the row is one message.';
COMMENT ON COLUMN task_messages.packed_count IS 'Their number.';
-- Those that a process of an earlier build, started again in place of a newer one, has taken for one message.
CREATE INDEX task_messages_packs_left ON task_messages (key) WHERE packed IS NOT NULL AND run_id IS NULL;
