-- expand: sessions, subscriptions and retained messages of MQTT

-- What publishers of MQTT said about messages of the batch beside their content, by the number of the message:
-- JSON text, NULL where all of them are as those of any protocol.
ALTER TABLE ingest_batches ADD COLUMN envelopes text;

-- Processes that hold sessions, and how far each has delivered the log of messages to those that wait for nothing.
CREATE TABLE mqtt_nodes (
  node text CONSTRAINT mqtt_nodes_pkey PRIMARY KEY,
  seen_at timestamptz NOT NULL DEFAULT now(),
  position text
);

CREATE TABLE mqtt_sessions (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT mqtt_sessions_pkey PRIMARY KEY,
  client_key bigint NOT NULL CONSTRAINT mqtt_sessions_client_key_fkey REFERENCES clients (key) ON DELETE CASCADE,
  client_identifier text NOT NULL,
  -- Raised with each connection: whoever holds an older one may write no more.
  epoch bigint NOT NULL DEFAULT 1,
  -- The process that has its connection, or had the last one.
  node text NOT NULL,
  is_connected boolean NOT NULL DEFAULT true,
  version smallint NOT NULL,
  address text NOT NULL,
  -- How long it outlives its connection; 0: it ends with it.
  expiry_seconds bigint NOT NULL,
  connected_at timestamptz NOT NULL DEFAULT now(),
  disconnected_at timestamptz,
  -- Of one that is not connected.
  ends_at timestamptz,
  will jsonb,
  will_payload bytea,
  will_due_at timestamptz,
  -- Messages that came while it was away and were too many.
  skipped_messages bigint NOT NULL DEFAULT 0,
  CONSTRAINT mqtt_sessions_client_identifier_key UNIQUE (client_key, client_identifier)
);
CREATE INDEX mqtt_sessions_node_idx ON mqtt_sessions (node) WHERE is_connected;
CREATE INDEX mqtt_sessions_ends_at_idx ON mqtt_sessions (ends_at) WHERE ends_at IS NOT NULL;
CREATE INDEX mqtt_sessions_will_due_at_idx ON mqtt_sessions (will_due_at) WHERE will_due_at IS NOT NULL;

CREATE TABLE mqtt_subscriptions (
  session_key bigint CONSTRAINT mqtt_subscriptions_session_key_fkey REFERENCES mqtt_sessions (key) ON DELETE CASCADE,
  -- As the client wrote it.
  filter text NOT NULL,
  client_key bigint NOT NULL,
  channel_key bigint NOT NULL,
  -- The byte of SUBSCRIBE (MQTT 5.0 section 3.8.3.1).
  options smallint NOT NULL,
  identifier integer,
  -- Where it stands in the log of messages; NULL: where the node of its session stands.
  position text,
  CONSTRAINT mqtt_subscriptions_pkey PRIMARY KEY (session_key, filter),
  -- Who is disconnected from a channel loses what it subscribed to there.
  CONSTRAINT mqtt_subscriptions_connection_fkey FOREIGN KEY (client_key, channel_key)
    REFERENCES connections (client_key, channel_key) ON DELETE CASCADE
);
CREATE INDEX mqtt_subscriptions_connection_idx ON mqtt_subscriptions (client_key, channel_key);

-- Identifiers of QoS 2 messages that were stored and not released by their sender.
CREATE TABLE mqtt_received (
  session_key bigint CONSTRAINT mqtt_received_session_key_fkey REFERENCES mqtt_sessions (key) ON DELETE CASCADE,
  packet_id integer NOT NULL,
  CONSTRAINT mqtt_received_pkey PRIMARY KEY (session_key, packet_id)
);

-- Messages on their way to a client: with QoS 2 from before they are sent, others while there is no connection.
CREATE TABLE mqtt_outbound (
  session_key bigint CONSTRAINT mqtt_outbound_session_key_fkey REFERENCES mqtt_sessions (key) ON DELETE CASCADE,
  ordinal bigint NOT NULL,
  -- 0: it was not sent.
  packet_id integer NOT NULL,
  qos smallint NOT NULL,
  -- 0 waiting, 1 sent, 2 released, 3 done: kept until the position has passed it.
  state smallint NOT NULL,
  -- The message in the log; NULL: it came from what is retained.
  batch_seq bigint,
  message integer,
  channel_key bigint NOT NULL,
  subtopic text NOT NULL,
  facts jsonb NOT NULL,
  payload bytea NOT NULL,
  CONSTRAINT mqtt_outbound_pkey PRIMARY KEY (session_key, ordinal)
);

-- Sessions that another process took over: whoever had the connection closes it.
CREATE TABLE mqtt_takeovers (
  node text NOT NULL,
  session_key bigint NOT NULL,
  epoch bigint NOT NULL,
  CONSTRAINT mqtt_takeovers_pkey PRIMARY KEY (node, session_key, epoch)
);

-- The last message of a topic that was published to be kept (MQTT 5.0 section 3.3.1.3).
CREATE TABLE mqtt_retained (
  channel_key bigint CONSTRAINT mqtt_retained_channel_key_fkey REFERENCES channels (key) ON DELETE CASCADE,
  subtopic text NOT NULL,
  publisher_id text NOT NULL,
  qos smallint NOT NULL,
  -- What its publisher said beside the content; NULL: nothing.
  envelope text,
  payload bytea NOT NULL,
  stored_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz,
  CONSTRAINT mqtt_retained_pkey PRIMARY KEY (channel_key, subtopic)
);
CREATE INDEX mqtt_retained_expires_at_idx ON mqtt_retained (expires_at) WHERE expires_at IS NOT NULL;
