-- expand: named consumers of messages, what of their messages is in doubt, and what was given up
CREATE TABLE message_consumers (
  key bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  id uuid NOT NULL,
  domain_key bigint NOT NULL,
  name text NOT NULL,
  subtopic text NOT NULL,
  publisher_ids text[],
  protocol text,
  ordering text NOT NULL,
  max_in_flight integer NOT NULL,
  ack_wait_ms bigint NOT NULL,
  max_deliver integer NOT NULL,
  xid xid8 NOT NULL,
  seq bigint NOT NULL,
  message integer NOT NULL,
  not_before timestamptz,
  behind_since timestamptz,
  checked_at timestamptz NOT NULL DEFAULT now(),
  expired bigint NOT NULL DEFAULT 0,
  warned_at timestamptz,
  error_at timestamptz,
  error_reason text,
  created_by uuid NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_by uuid,
  updated_at timestamptz,
  CONSTRAINT message_consumers_pkey PRIMARY KEY (key),
  CONSTRAINT message_consumers_id_key UNIQUE (id),
  CONSTRAINT message_consumers_name_key UNIQUE (domain_key, name),
  CONSTRAINT message_consumers_domain_fkey FOREIGN KEY (domain_key) REFERENCES domains(key) ON DELETE CASCADE,
  CONSTRAINT message_consumers_ordering_check CHECK (ordering IN ('client', 'channel', 'none')),
  CONSTRAINT message_consumers_error_check CHECK (num_nulls(error_at, error_reason) IN (0, 2))
);
COMMENT ON TABLE message_consumers IS 'Named consumers: a filter on channels, and a place in the changelog of messages (ingest_batches).';
COMMENT ON COLUMN message_consumers.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN message_consumers.id IS 'Id that users see.';
COMMENT ON COLUMN message_consumers.domain_key IS 'The domain.';
COMMENT ON COLUMN message_consumers.name IS 'Name, unique in the domain.';
COMMENT ON COLUMN message_consumers.subtopic IS 'Filter of subtopics with the wildcards * and >, elements joined by a dot.';
COMMENT ON COLUMN message_consumers.publisher_ids IS 'Only messages of these clients; NULL: of any publisher.';
COMMENT ON COLUMN message_consumers.protocol IS 'Only messages that came by this protocol; NULL: by any.';
COMMENT ON COLUMN message_consumers.ordering IS 'What a message in doubt holds back: later ones of its client, of its channel, or none.';
COMMENT ON COLUMN message_consumers.max_in_flight IS 'Number of delivered messages that are not acknowledged, at most.';
COMMENT ON COLUMN message_consumers.ack_wait_ms IS 'Milliseconds after which a message that is not acknowledged is delivered again.';
COMMENT ON COLUMN message_consumers.max_deliver IS 'Deliveries after which a message becomes a dead letter.';
COMMENT ON COLUMN message_consumers.xid IS 'Transaction of the batch that it reads on with. Everything before the place is done, or a row of message_consumer_deliveries.';
COMMENT ON COLUMN message_consumers.seq IS 'Number of that batch.';
COMMENT ON COLUMN message_consumers.message IS 'Number of the next message in that batch.';
COMMENT ON COLUMN message_consumers.not_before IS 'Messages that arrived earlier are passed over; NULL: none.';
COMMENT ON COLUMN message_consumers.behind_since IS 'Arrival of the message at the place; NULL: none is known to wait there.';
COMMENT ON COLUMN message_consumers.checked_at IS 'When it was last found out whether a message waits.';
COMMENT ON COLUMN message_consumers.expired IS 'Number of messages that waited for longer than messages wait, or were deleted meanwhile.';
COMMENT ON COLUMN message_consumers.warned_at IS 'When the journal last said that messages expire soon; NULL: never.';
COMMENT ON COLUMN message_consumers.error_at IS 'When a caller was first refused since the last delivery; NULL: none was.';
COMMENT ON COLUMN message_consumers.error_reason IS 'Why, as a sentence; NULL: none was.';
COMMENT ON COLUMN message_consumers.created_by IS 'Id of the user who created it.';
COMMENT ON COLUMN message_consumers.created_at IS 'When it was created.';
COMMENT ON COLUMN message_consumers.updated_by IS 'Id of the user who last changed it; NULL: it was never changed.';
COMMENT ON COLUMN message_consumers.updated_at IS 'When it was last changed; NULL: never.';
CREATE INDEX message_consumers_page ON message_consumers (domain_key, created_at, key);

CREATE TABLE message_consumer_channels (
  consumer_key bigint NOT NULL,
  channel_key bigint NOT NULL,
  CONSTRAINT message_consumer_channels_pkey PRIMARY KEY (consumer_key, channel_key),
  CONSTRAINT message_consumer_channels_consumer_fkey FOREIGN KEY (consumer_key) REFERENCES message_consumers(key) ON DELETE CASCADE,
  CONSTRAINT message_consumer_channels_channel_fkey FOREIGN KEY (channel_key) REFERENCES channels(key) ON DELETE CASCADE
);
COMMENT ON TABLE message_consumer_channels IS 'The channels of named consumers.';
COMMENT ON COLUMN message_consumer_channels.consumer_key IS 'The consumer.';
COMMENT ON COLUMN message_consumer_channels.channel_key IS 'The channel.';
CREATE INDEX message_consumer_channels_channel ON message_consumer_channels (channel_key);

CREATE TABLE message_consumer_deliveries (
  consumer_key bigint NOT NULL,
  xid xid8 NOT NULL,
  seq bigint NOT NULL,
  message integer NOT NULL,
  channel_key bigint NOT NULL,
  publisher_id text NOT NULL,
  arrived_at timestamptz NOT NULL,
  attempts integer NOT NULL,
  due_at timestamptz NOT NULL,
  reason text,
  dead_at timestamptz,
  letter_id uuid,
  CONSTRAINT message_consumer_deliveries_pkey PRIMARY KEY (consumer_key, xid, seq, message),
  CONSTRAINT message_consumer_deliveries_consumer_fkey FOREIGN KEY (consumer_key) REFERENCES message_consumers(key) ON DELETE CASCADE,
  CONSTRAINT message_consumer_deliveries_dead_check CHECK (num_nulls(dead_at, letter_id) IN (0, 2))
);
COMMENT ON TABLE message_consumer_deliveries IS 'Messages before the place of a named consumer that are not done: delivered, held back by an earlier one, or given up. Acknowledged ones are deleted.';
COMMENT ON COLUMN message_consumer_deliveries.consumer_key IS 'The consumer.';
COMMENT ON COLUMN message_consumer_deliveries.xid IS 'Transaction of the batch of the message.';
COMMENT ON COLUMN message_consumer_deliveries.seq IS 'Number of the batch.';
COMMENT ON COLUMN message_consumer_deliveries.message IS 'Number of the message in the batch.';
COMMENT ON COLUMN message_consumer_deliveries.channel_key IS 'The channel, which may be deleted since.';
COMMENT ON COLUMN message_consumer_deliveries.publisher_id IS 'Id of the client that published it; empty: a user or a task did.';
COMMENT ON COLUMN message_consumer_deliveries.arrived_at IS 'When the message arrived: finds its partition.';
COMMENT ON COLUMN message_consumer_deliveries.attempts IS 'Number of deliveries; 0: it is held back.';
COMMENT ON COLUMN message_consumer_deliveries.due_at IS 'When it is delivered again unless it is acknowledged before; infinity: it was given up.';
COMMENT ON COLUMN message_consumer_deliveries.reason IS 'What the last nack said; NULL: nothing.';
COMMENT ON COLUMN message_consumer_deliveries.dead_at IS 'When it was given up; NULL: it was not.';
COMMENT ON COLUMN message_consumer_deliveries.letter_id IS 'Id of the dead letter that users see; NULL: it is none.';
CREATE INDEX message_consumer_deliveries_open ON message_consumer_deliveries (consumer_key, xid, seq, message) WHERE dead_at IS NULL;
CREATE INDEX message_consumer_deliveries_dead ON message_consumer_deliveries (consumer_key, dead_at, letter_id) WHERE dead_at IS NOT NULL;
CREATE INDEX message_consumer_deliveries_letters ON message_consumer_deliveries (dead_at) WHERE dead_at IS NOT NULL;
