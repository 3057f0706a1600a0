-- expand: what a device should be, and what it reports, and subscriptions of devices on topics of their own
CREATE TABLE device_states (
  client_key bigint NOT NULL,
  name text NOT NULL,
  domain_key bigint NOT NULL,
  desired jsonb NOT NULL,
  reported jsonb NOT NULL,
  delta jsonb NOT NULL,
  version bigint NOT NULL,
  notified_version bigint NOT NULL,
  desired_at timestamptz,
  reported_at timestamptz,
  CONSTRAINT device_states_pkey PRIMARY KEY (client_key, name),
  CONSTRAINT device_states_client_fkey FOREIGN KEY (client_key) REFERENCES clients(key) ON DELETE CASCADE
);
COMMENT ON TABLE device_states IS 'State of clients: what they should be and what they report. A client has one document without a name and any of its own names.';
COMMENT ON COLUMN device_states.client_key IS 'The client.';
COMMENT ON COLUMN device_states.name IS 'Name of the document; empty: the one without a name.';
COMMENT ON COLUMN device_states.domain_key IS 'Domain of the client.';
COMMENT ON COLUMN device_states.desired IS 'What the client should be, set by users.';
COMMENT ON COLUMN device_states.reported IS 'What the client says that it is.';
COMMENT ON COLUMN device_states.delta IS 'The part of desired that reported does not equal.';
COMMENT ON COLUMN device_states.version IS 'Grows with each change. At least the time of the change in milliseconds since 1970, so that it also grows over a deletion and a restore.';
COMMENT ON COLUMN device_states.notified_version IS 'Version of the last change of which the client must be notified; 0: none.';
COMMENT ON COLUMN device_states.desired_at IS 'Time of the last change of desired; NULL: never set.';
COMMENT ON COLUMN device_states.reported_at IS 'Time of the last report; NULL: never reported.';
CREATE INDEX device_states_out_of_sync ON device_states USING btree (domain_key, client_key) WHERE delta <> '{}'::jsonb;
CREATE INDEX device_states_reported ON device_states USING gin (reported jsonb_path_ops);

ALTER TABLE mqtt_subscriptions ALTER COLUMN channel_key DROP NOT NULL;
COMMENT ON COLUMN mqtt_subscriptions.channel_key IS 'Channel of the filter. A client that is disconnected from the channel loses the subscription. NULL: a topic of the device itself (c/<domain>/…).';
