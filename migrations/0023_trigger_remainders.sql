-- expand: a message that many triggers match is handed to them in steps
CREATE TABLE trigger_remainders (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT trigger_remainders_pkey PRIMARY KEY,
  channel_key bigint NOT NULL CONSTRAINT trigger_remainders_channel_key_fkey REFERENCES channels (key) ON DELETE CASCADE,
  xid xid8 NOT NULL,
  seq bigint NOT NULL,
  arrived_at timestamptz NOT NULL,
  after_task_key bigint NOT NULL DEFAULT 0
);
COMMENT ON TABLE trigger_remainders IS 'Batches of messages that the triggers of a channel get in steps, because many match: the oldest batch of a channel first.';
COMMENT ON COLUMN trigger_remainders.key IS 'Internal key, in the order of the batches.';
COMMENT ON COLUMN trigger_remainders.channel_key IS 'The channel.';
COMMENT ON COLUMN trigger_remainders.xid IS 'Transaction of the batch.';
COMMENT ON COLUMN trigger_remainders.seq IS 'The batch.';
COMMENT ON COLUMN trigger_remainders.arrived_at IS 'When the batch arrived.';
COMMENT ON COLUMN trigger_remainders.after_task_key IS 'Tasks up to this one have the messages of the batch.';
CREATE INDEX trigger_remainders_channel ON trigger_remainders (channel_key, key);
