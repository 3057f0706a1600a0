-- expand: sums of whole channels

-- Processes that hold sessions of clients; one that was not seen for a while is dead, and another one clears it away.
CREATE TABLE presence_nodes (
  node text CONSTRAINT presence_nodes_pkey PRIMARY KEY,
  seen_at timestamptz NOT NULL DEFAULT now()
);

-- Sessions that are open, by client, process and protocol.
CREATE TABLE client_presence (
  client_key bigint CONSTRAINT client_presence_client_key_fkey REFERENCES clients (key) ON DELETE CASCADE,
  node text CONSTRAINT client_presence_node_fkey REFERENCES presence_nodes (node) ON DELETE CASCADE,
  -- As in `records`.
  protocol smallint NOT NULL,
  sessions integer NOT NULL,
  subscriptions integer NOT NULL,
  CONSTRAINT client_presence_pkey PRIMARY KEY (client_key, node, protocol)
);
CREATE INDEX client_presence_node_idx ON client_presence (node);

ALTER TABLE client_telemetry
  -- Messages that were handed to its sessions.
  ADD COLUMN outbound_messages bigint NOT NULL DEFAULT 0,
  ADD COLUMN is_online boolean NOT NULL DEFAULT false,
  -- Since when it is online or offline; NULL for a client that never had a session.
  ADD COLUMN state_since timestamptz;
