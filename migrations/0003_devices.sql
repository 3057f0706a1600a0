-- expand: clients, channels and the connections between them

CREATE EXTENSION IF NOT EXISTS pg_trgm;

CREATE TABLE clients (
  key bigint CONSTRAINT clients_pkey PRIMARY KEY DEFAULT nextval('entity_keys'),
  domain_key bigint NOT NULL CONSTRAINT clients_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  -- Unique within the domain only: it may come from outside.
  id uuid NOT NULL,
  name text NOT NULL DEFAULT '',
  tags text[] NOT NULL DEFAULT '{}',
  identity text NOT NULL DEFAULT '',
  -- Keyed digest of the secret, for the lookup; the secret itself sealed, for the listings.
  secret_mac bytea NOT NULL,
  secret_sealed bytea NOT NULL,
  metadata jsonb NOT NULL DEFAULT '{}',
  status text NOT NULL DEFAULT 'enabled' CONSTRAINT clients_status_check CHECK (status IN ('enabled', 'disabled')),
  parent_group_key bigint CONSTRAINT clients_parent_group_fkey REFERENCES groups (key) ON DELETE SET NULL,
  created_by uuid,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_by uuid,
  updated_at timestamptz,
  CONSTRAINT clients_id_key UNIQUE (domain_key, id),
  CONSTRAINT clients_secret_key UNIQUE (domain_key, secret_mac)
);
-- A device on a path that names no domain is looked up by its secret alone.
CREATE INDEX clients_secret ON clients (secret_mac);
CREATE INDEX clients_order ON clients (domain_key, status, coalesce(updated_at, created_at), created_at, id);
CREATE INDEX clients_created ON clients (domain_key, created_at, id);
CREATE INDEX clients_name_trgm ON clients USING gin (name gin_trgm_ops);
CREATE INDEX clients_tags ON clients USING gin (tags);
CREATE INDEX clients_metadata ON clients USING gin (metadata jsonb_path_ops);
CREATE INDEX clients_parent_group ON clients (parent_group_key) WHERE parent_group_key IS NOT NULL;

CREATE TABLE channels (
  key bigint CONSTRAINT channels_pkey PRIMARY KEY DEFAULT nextval('entity_keys'),
  domain_key bigint NOT NULL CONSTRAINT channels_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  id uuid NOT NULL,
  name text NOT NULL DEFAULT '',
  description text,
  route text,
  tags text[] NOT NULL DEFAULT '{}',
  metadata jsonb NOT NULL DEFAULT '{}',
  status text NOT NULL DEFAULT 'enabled' CONSTRAINT channels_status_check CHECK (status IN ('enabled', 'disabled')),
  parent_group_key bigint CONSTRAINT channels_parent_group_fkey REFERENCES groups (key) ON DELETE SET NULL,
  retention_days integer CONSTRAINT channels_retention_check CHECK (retention_days > 0),
  created_by uuid,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_by uuid,
  updated_at timestamptz,
  CONSTRAINT channels_id_key UNIQUE (domain_key, id)
);
CREATE UNIQUE INDEX channels_route_key ON channels (domain_key, lower(route));
CREATE INDEX channels_order ON channels (domain_key, status, coalesce(updated_at, created_at), created_at, id);
CREATE INDEX channels_created ON channels (domain_key, created_at, id);
CREATE INDEX channels_name_trgm ON channels USING gin (name gin_trgm_ops);
CREATE INDEX channels_tags ON channels USING gin (tags);
CREATE INDEX channels_metadata ON channels USING gin (metadata jsonb_path_ops);
CREATE INDEX channels_parent_group ON channels (parent_group_key) WHERE parent_group_key IS NOT NULL;
-- A path without a domain names a channel by its id alone.
CREATE INDEX channels_id ON channels (id);

CREATE TABLE connections (
  client_key bigint NOT NULL CONSTRAINT connections_client_fkey REFERENCES clients (key) ON DELETE CASCADE,
  channel_key bigint NOT NULL CONSTRAINT connections_channel_fkey REFERENCES channels (key) ON DELETE CASCADE,
  domain_key bigint NOT NULL,
  -- Bits: 1 publish, 2 subscribe.
  types smallint NOT NULL CONSTRAINT connections_types_check CHECK (types BETWEEN 1 AND 3),
  created_by uuid,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz,
  CONSTRAINT connections_pkey PRIMARY KEY (client_key, channel_key)
);
CREATE INDEX connections_channel ON connections (channel_key, client_key);
