-- expand: a shared subscription of MQTT is one reader of the log over all processes

CREATE TABLE mqtt_groups (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT mqtt_groups_pkey PRIMARY KEY,
  channel_key bigint NOT NULL CONSTRAINT mqtt_groups_channel_key_fkey REFERENCES channels (key) ON DELETE CASCADE,
  -- What stands behind $share/, and the canonical filter of subtopics.
  name text NOT NULL,
  filter text NOT NULL,
  -- The process that reads for its members; NULL: none.
  node text,
  -- Raised with each process that begins to: whoever holds an older one may write no more.
  epoch bigint NOT NULL DEFAULT 1,
  -- Where it stands in the log of messages; NULL: where its node stands.
  position text,
  CONSTRAINT mqtt_groups_name_key UNIQUE (channel_key, name, filter)
);
CREATE INDEX mqtt_groups_node_idx ON mqtt_groups (node) WHERE node IS NOT NULL;

-- Messages beyond the position of a group that nobody is given again: they went their whole way, or were sent with QoS 2.
CREATE TABLE mqtt_passed (
  group_key bigint CONSTRAINT mqtt_passed_group_key_fkey REFERENCES mqtt_groups (key) ON DELETE CASCADE,
  batch_seq bigint NOT NULL,
  message integer NOT NULL,
  CONSTRAINT mqtt_passed_pkey PRIMARY KEY (group_key, batch_seq, message)
);

-- Of a shared subscription: the group stays as long as somebody subscribes to it.
ALTER TABLE mqtt_subscriptions ADD COLUMN group_key bigint CONSTRAINT mqtt_subscriptions_group_key_fkey REFERENCES mqtt_groups (key);
CREATE INDEX mqtt_subscriptions_group_key_idx ON mqtt_subscriptions (group_key) WHERE group_key IS NOT NULL;
