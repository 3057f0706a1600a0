-- expand: usage of domains and telemetry of clients, counted by the folder

-- Messages and records that arrived, per day of UTC. What is deleted later stays counted.
CREATE TABLE domain_usage (
  domain_key bigint NOT NULL CONSTRAINT domain_usage_domain_key_fkey REFERENCES domains (key) ON DELETE CASCADE,
  day date NOT NULL,
  messages bigint NOT NULL,
  -- Resolved SenML records, and JSON objects and raw payloads alike.
  records bigint NOT NULL,
  CONSTRAINT domain_usage_pkey PRIMARY KEY (domain_key, day)
);

-- What a client has published.
CREATE TABLE client_telemetry (
  client_key bigint CONSTRAINT client_telemetry_pkey PRIMARY KEY
    CONSTRAINT client_telemetry_client_key_fkey REFERENCES clients (key) ON DELETE CASCADE,
  first_seen timestamptz NOT NULL,
  last_seen timestamptz NOT NULL,
  inbound_messages bigint NOT NULL
);
