-- expand: users, sessions, domains, groups, roles, grants and the journal

-- One sequence for the keys of all entities: a key alone says which entity is meant, and none is used twice.
CREATE SEQUENCE entity_keys AS bigint;

CREATE TABLE users (
  key bigint CONSTRAINT users_pkey PRIMARY KEY DEFAULT nextval('entity_keys'),
  id uuid NOT NULL CONSTRAINT users_id_key UNIQUE,
  first_name text,
  last_name text,
  -- The display name of the older record shape; such users have no first and last name.
  name text,
  email text,
  username text,
  -- PHC string of argon2id.
  secret_hash text NOT NULL,
  tags text[] NOT NULL DEFAULT '{}',
  metadata jsonb NOT NULL DEFAULT '{}',
  profile_picture text,
  role text NOT NULL DEFAULT 'user' CONSTRAINT users_role_check CHECK (role IN ('user', 'admin')),
  status text NOT NULL DEFAULT 'enabled' CONSTRAINT users_status_check CHECK (status IN ('enabled', 'disabled', 'deleted')),
  created_by uuid,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_by uuid,
  updated_at timestamptz,
  verified_at timestamptz,
  deleted_at timestamptz,
  CONSTRAINT users_login_check CHECK (email IS NOT NULL OR username IS NOT NULL)
);
CREATE UNIQUE INDEX users_email_key ON users (lower(email));
CREATE UNIQUE INDEX users_username_key ON users (lower(username));
CREATE INDEX users_created_by ON users (created_by);

-- First and last names that must stay unique; empty while the rule is switched off.
CREATE TABLE user_unique_names (
  kind text NOT NULL CONSTRAINT user_unique_names_kind_check CHECK (kind IN ('first_name', 'last_name')),
  value text NOT NULL,
  user_key bigint NOT NULL CONSTRAINT user_unique_names_user_fkey REFERENCES users (key) ON DELETE CASCADE,
  CONSTRAINT user_unique_names_pkey PRIMARY KEY (kind, value)
);
CREATE INDEX user_unique_names_user ON user_unique_names (user_key);

-- A login and everything refreshed from it. Only the refresh token of the current generation is good; an older one
-- that comes back was stolen or copied, and ends the session.
CREATE TABLE sessions (
  id uuid CONSTRAINT sessions_pkey PRIMARY KEY,
  user_key bigint NOT NULL CONSTRAINT sessions_user_fkey REFERENCES users (key) ON DELETE CASCADE,
  domain_key bigint,
  generation integer NOT NULL DEFAULT 0,
  address text,
  user_agent text,
  created_at timestamptz NOT NULL DEFAULT now(),
  last_used_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL,
  revoked_at timestamptz
);
CREATE INDEX sessions_user ON sessions (user_key, expires_at);
CREATE INDEX sessions_expiry ON sessions (expires_at);

CREATE TABLE signing_keys (
  kid text CONSTRAINT signing_keys_pkey PRIMARY KEY,
  public_key bytea NOT NULL,
  sealed_private_key bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  -- Signs until then, verifies until every token that it signed has expired.
  retired_at timestamptz
);

CREATE TABLE domains (
  key bigint CONSTRAINT domains_pkey PRIMARY KEY DEFAULT nextval('entity_keys'),
  id uuid NOT NULL CONSTRAINT domains_id_key UNIQUE,
  name text NOT NULL,
  -- The value that the wire calls both alias and route.
  route text NOT NULL,
  tags text[] NOT NULL DEFAULT '{}',
  metadata jsonb NOT NULL DEFAULT '{}',
  status text NOT NULL DEFAULT 'enabled'
    CONSTRAINT domains_status_check CHECK (status IN ('enabled', 'disabled', 'freezed', 'deleted')),
  -- Days that messages are kept; NULL: for ever.
  retention_days integer CONSTRAINT domains_retention_check CHECK (retention_days > 0),
  -- The database that holds the domain; one today.
  home smallint NOT NULL DEFAULT 0,
  created_by uuid,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_by uuid,
  updated_at timestamptz,
  deleted_at timestamptz
);
CREATE UNIQUE INDEX domains_route_key ON domains (lower(route));

CREATE TABLE groups (
  key bigint CONSTRAINT groups_pkey PRIMARY KEY DEFAULT nextval('entity_keys'),
  domain_key bigint NOT NULL CONSTRAINT groups_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  id uuid NOT NULL,
  parent_key bigint CONSTRAINT groups_parent_fkey REFERENCES groups (key),
  name text NOT NULL,
  description text,
  tags text[] NOT NULL DEFAULT '{}',
  metadata jsonb NOT NULL DEFAULT '{}',
  status text NOT NULL DEFAULT 'enabled' CONSTRAINT groups_status_check CHECK (status IN ('enabled', 'disabled')),
  created_by uuid,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_by uuid,
  updated_at timestamptz,
  CONSTRAINT groups_id_key UNIQUE (domain_key, id)
);
CREATE INDEX groups_parent ON groups (parent_key);
CREATE INDEX groups_domain_order ON groups (domain_key, status, coalesce(updated_at, created_at), created_at, id);

-- Every pair of a group and a group at or below it; a group is its own descendant at depth 0.
CREATE TABLE group_closure (
  ancestor_key bigint NOT NULL CONSTRAINT group_closure_ancestor_fkey REFERENCES groups (key) ON DELETE CASCADE,
  descendant_key bigint NOT NULL CONSTRAINT group_closure_descendant_fkey REFERENCES groups (key) ON DELETE CASCADE,
  depth smallint NOT NULL CONSTRAINT group_closure_depth_check CHECK (depth BETWEEN 0 AND 20),
  CONSTRAINT group_closure_pkey PRIMARY KEY (ancestor_key, descendant_key)
);
CREATE INDEX group_closure_descendant ON group_closure (descendant_key, depth);

-- The built-in role "admin" of an entity is no row: its id derives from the entity's key, its actions stand in code,
-- and its members are grants with role_key 0.
CREATE TABLE roles (
  key bigint CONSTRAINT roles_pkey PRIMARY KEY DEFAULT nextval('entity_keys'),
  id text NOT NULL CONSTRAINT roles_id_key UNIQUE,
  entity_type text NOT NULL CONSTRAINT roles_entity_type_check CHECK (entity_type IN ('domain', 'group', 'channel', 'client')),
  domain_key bigint NOT NULL CONSTRAINT roles_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  entity_key bigint NOT NULL,
  name text NOT NULL,
  actions text[] NOT NULL DEFAULT '{}',
  created_by uuid,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_by uuid,
  updated_at timestamptz,
  CONSTRAINT roles_entity_name_key UNIQUE (entity_key, name),
  CONSTRAINT roles_name_check CHECK (name <> 'admin')
);

-- Who holds which role on what. One row per membership, whatever the entity.
CREATE TABLE grants (
  user_key bigint NOT NULL CONSTRAINT grants_user_fkey REFERENCES users (key) ON DELETE CASCADE,
  entity_type text NOT NULL CONSTRAINT grants_entity_type_check CHECK (entity_type IN ('domain', 'group', 'channel', 'client')),
  domain_key bigint NOT NULL CONSTRAINT grants_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  entity_key bigint NOT NULL,
  role_key bigint NOT NULL DEFAULT 0,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT grants_pkey PRIMARY KEY (user_key, domain_key, entity_type, entity_key, role_key)
);
CREATE INDEX grants_entity ON grants (entity_key, role_key);

-- Every change of an entity, one row per call, written in the transaction of the change. It is a log: see core/log.
CREATE TABLE journal (
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  seq bigint GENERATED ALWAYS AS IDENTITY,
  occurred_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- `<entity>.<what>`, for example `client.create`.
  operation text NOT NULL,
  -- NULL: the change belongs to no domain.
  domain_key bigint,
  actor_kind text NOT NULL CONSTRAINT journal_actor_kind_check CHECK (actor_kind IN ('user', 'client', 'system')),
  actor_key bigint,
  actor_id uuid,
  address text,
  request_id text,
  -- Keys of everything that changed: what caches must forget.
  entity_keys bigint[] NOT NULL,
  attributes jsonb NOT NULL DEFAULT '{}',
  CONSTRAINT journal_pkey PRIMARY KEY (xid, seq)
);
CREATE INDEX journal_domain ON journal (domain_key, occurred_at);
CREATE INDEX journal_actor ON journal (actor_key, occurred_at);
CREATE INDEX journal_entities ON journal USING gin (entity_keys);
