-- expand: what every room stands on: the nodes that are alive, the installation's own facts, positions of log readers

-- One row per process of ours; a contract migration looks for older ones.
CREATE TABLE nodes (
  id text CONSTRAINT nodes_pkey PRIMARY KEY,
  kind text NOT NULL,
  version text NOT NULL,
  migration integer NOT NULL,
  started_at timestamptz NOT NULL DEFAULT now(),
  seen_at timestamptz NOT NULL DEFAULT now()
);

-- Facts of this installation, one row each: the fingerprint of the secret key, signing keys' generation, and so on.
CREATE TABLE installation (
  name text CONSTRAINT installation_pkey PRIMARY KEY,
  value jsonb NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now()
);

-- Secrets of the installation, sealed with a key derived from SKEIN_SECRET_KEY.
CREATE TABLE sealed_secrets (
  name text CONSTRAINT sealed_secrets_pkey PRIMARY KEY,
  sealed bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);

-- How far a consumer of a log has read: the position of the last row whose effect is committed.
CREATE TABLE consumers (
  name text CONSTRAINT consumers_pkey PRIMARY KEY,
  xid xid8 NOT NULL,
  seq bigint NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now()
);
