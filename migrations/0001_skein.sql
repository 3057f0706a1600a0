-- expand: the schema of Skein

-- Everything that Skein stores, in the order of its rooms. Each table and column has its sentence as a COMMENT, which
-- schema.sql and `\d+` of psql show as well. Names of constraints are part of the program: it decides by them which
-- error to report.

-- Listings search for parts of names.
CREATE EXTENSION IF NOT EXISTS pg_trgm;

--
-- Core: processes, facts and secrets of the installation, positions in the logs
--

CREATE TABLE nodes (
  id text CONSTRAINT nodes_pkey PRIMARY KEY,
  kind text NOT NULL,
  version text NOT NULL,
  migration integer NOT NULL,
  started_at timestamptz NOT NULL DEFAULT now(),
  seen_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE nodes IS 'One row per running process. A contract migration waits until no older one is alive.';
COMMENT ON COLUMN nodes.id IS 'Name of the process, unique for each start.';
COMMENT ON COLUMN nodes.kind IS 'The program: api, manager or all.';
COMMENT ON COLUMN nodes.version IS 'Version of Skein that the process runs.';
COMMENT ON COLUMN nodes.migration IS 'Number of the newest migration that the process knows.';
COMMENT ON COLUMN nodes.started_at IS 'When the process started.';
COMMENT ON COLUMN nodes.seen_at IS 'When the process last reported that it is alive.';

CREATE TABLE installation (
  name text CONSTRAINT installation_pkey PRIMARY KEY,
  value jsonb NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE installation IS 'Facts about this installation, one row each, such as the fingerprint of the secret key.';
COMMENT ON COLUMN installation.name IS 'Name of the fact.';
COMMENT ON COLUMN installation.value IS 'The fact, as JSON.';
COMMENT ON COLUMN installation.updated_at IS 'When it last changed.';

CREATE TABLE sealed_secrets (
  name text CONSTRAINT sealed_secrets_pkey PRIMARY KEY,
  sealed bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE sealed_secrets IS 'Secrets of the installation, encrypted with a key derived from SKEIN_SECRET_KEY.';
COMMENT ON COLUMN sealed_secrets.name IS 'Name of the secret.';
COMMENT ON COLUMN sealed_secrets.sealed IS 'The encrypted secret.';
COMMENT ON COLUMN sealed_secrets.created_at IS 'When it was created.';

CREATE TABLE consumers (
  name text CONSTRAINT consumers_pkey PRIMARY KEY,
  xid xid8 NOT NULL,
  seq bigint NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE consumers IS 'How far each consumer of a log has read: the position of the last row whose effect is committed.';
COMMENT ON COLUMN consumers.name IS 'Name of the consumer.';
COMMENT ON COLUMN consumers.xid IS 'First half of the position: the transaction that wrote the row.';
COMMENT ON COLUMN consumers.seq IS 'Second half of the position: the number of the row in its log.';
COMMENT ON COLUMN consumers.updated_at IS 'When the consumer last moved.';

-- A position holds the id of its transaction plus an offset. Ids alone may come again: after a failover, after a crash, and in a
-- database that was restored elsewhere. Each start of the database server begins an epoch with an offset of its own.
CREATE FUNCTION position_offset() RETURNS bigint STABLE PARALLEL SAFE LANGUAGE sql RETURN 0::bigint;
COMMENT ON FUNCTION position_offset() IS 'What positions of this epoch add to the ids of transactions. ensure_position_epoch replaces it.';
CREATE FUNCTION position_xid() RETURNS xid8 STABLE LANGUAGE sql
  RETURN (pg_current_xact_id()::text::bigint + position_offset())::text::xid8;
COMMENT ON FUNCTION position_xid() IS 'The transaction as the first half of a position.';
CREATE FUNCTION position_xmin() RETURNS xid8 STABLE PARALLEL SAFE LANGUAGE sql
  RETURN (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + position_offset())::text::xid8;
COMMENT ON FUNCTION position_xmin() IS 'No transaction that has a lower position runs any more. An expression without a query, so that the planner sees its value.';
CREATE FUNCTION position_snapshot() RETURNS pg_snapshot STABLE PARALLEL SAFE LANGUAGE sql AS $$
  SELECT concat_ws(':', pg_snapshot_xmin(now)::text::bigint + o.value, pg_snapshot_xmax(now)::text::bigint + o.value,
    coalesce((SELECT string_agg((xip::text::bigint + o.value)::text, ',' ORDER BY xip) FROM pg_snapshot_xip(now) xip), ''))::pg_snapshot
    FROM pg_current_snapshot() now, (SELECT position_offset() AS value) o
$$;
COMMENT ON FUNCTION position_snapshot() IS 'The snapshot of the statement, in positions.';

-- Unlogged: PostgreSQL empties it after a crash, in a promoted standby and in a restored base backup.
CREATE UNLOGGED TABLE position_epoch (
  server_started_at timestamptz CONSTRAINT position_epoch_pkey PRIMARY KEY,
  began_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE position_epoch IS 'The start of the database server for which position_offset() is valid: one row.';
COMMENT ON COLUMN position_epoch.server_started_at IS 'When the database server started.';
COMMENT ON COLUMN position_epoch.began_at IS 'When the epoch began.';

CREATE FUNCTION ensure_position_epoch() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  epoch_start bigint;
BEGIN
  IF EXISTS (SELECT FROM position_epoch WHERE server_started_at = pg_postmaster_start_time()) THEN
    RETURN false;
  END IF;
  PERFORM pg_advisory_xact_lock(hashtextextended('position epoch', 0));
  IF EXISTS (SELECT FROM position_epoch WHERE server_started_at = pg_postmaster_start_time()) THEN
    RETURN false;
  END IF;
  -- Microseconds since 1970: ahead of every position of an earlier epoch, known here or not, since no server runs a million
  -- transactions a second. What is stored counts too, in case the clock was set back or the one of another server is behind; so do
  -- the positions of the earlier epoch that only a lost server gave away: no standby is a million transactions behind.
  SELECT greatest((extract(epoch FROM clock_timestamp()) * 1000000)::bigint, max(stored.xid::text::bigint) + 1,
                  pg_snapshot_xmax(pg_current_snapshot())::text::bigint + position_offset() + 1000000) INTO epoch_start
    FROM ((SELECT xid FROM journal ORDER BY xid DESC LIMIT 1) UNION ALL (SELECT xid FROM ingest_batches ORDER BY xid DESC LIMIT 1)
          UNION ALL (SELECT xid FROM task_events ORDER BY xid DESC LIMIT 1) UNION ALL SELECT xid FROM consumers) stored (xid);
  EXECUTE format('CREATE OR REPLACE FUNCTION position_offset() RETURNS bigint STABLE PARALLEL SAFE LANGUAGE sql RETURN %s::bigint',
    epoch_start - pg_snapshot_xmin(pg_current_snapshot())::text::bigint);
  DELETE FROM position_epoch;
  INSERT INTO position_epoch (server_started_at) VALUES (pg_postmaster_start_time());
  RETURN true;
END
$$;
COMMENT ON FUNCTION ensure_position_epoch() IS 'Called on each new connection before anything else. Begins an epoch, and returns true, unless one began since the database server started.';

--
-- Identity: users, their sessions, tokens and keys
--

-- Keys of all entities come from one sequence: a key alone says which entity is meant, and none is used twice.
CREATE SEQUENCE entity_keys AS bigint;

CREATE TABLE users (
  key bigint DEFAULT nextval('entity_keys') CONSTRAINT users_pkey PRIMARY KEY,
  id uuid NOT NULL CONSTRAINT users_id_key UNIQUE,
  first_name text,
  last_name text,
  name text,
  email text,
  username text,
  secret_hash text NOT NULL,
  tags text[] NOT NULL DEFAULT '{}',
  metadata jsonb NOT NULL DEFAULT '{}',
  private_metadata jsonb NOT NULL DEFAULT '{}',
  profile_picture text,
  role text NOT NULL DEFAULT 'user' CONSTRAINT users_role_check CHECK (role IN ('user', 'admin')),
  status text NOT NULL DEFAULT 'enabled' CONSTRAINT users_status_check CHECK (status IN ('enabled', 'disabled', 'deleted')),
  created_by uuid,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_by uuid,
  updated_at timestamptz,
  verified_at timestamptz,
  deleted_at timestamptz,
  quotas jsonb NOT NULL DEFAULT '{}',
  CONSTRAINT users_login_check CHECK (email IS NOT NULL OR username IS NOT NULL)
);
COMMENT ON TABLE users IS 'Accounts of people.';
COMMENT ON COLUMN users.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN users.id IS 'Id that users see.';
COMMENT ON COLUMN users.first_name IS 'First name; NULL where none was given.';
COMMENT ON COLUMN users.last_name IS 'Last name; NULL where none was given.';
COMMENT ON COLUMN users.name IS 'Display name of the older record shape; such users have no first and last name.';
COMMENT ON COLUMN users.email IS 'Mail address, unique without regard to case; NULL where the user logs in by user name.';
COMMENT ON COLUMN users.username IS 'User name, unique without regard to case; NULL where the user logs in by mail address.';
COMMENT ON COLUMN users.secret_hash IS 'Password, as a PHC string of argon2id.';
COMMENT ON COLUMN users.tags IS 'Tags that users give it.';
COMMENT ON COLUMN users.metadata IS 'Free-form JSON that users store with it.';
COMMENT ON COLUMN users.private_metadata IS 'Free-form JSON for users who may update it; hidden from others.';
COMMENT ON COLUMN users.profile_picture IS 'URL of a picture.';
COMMENT ON COLUMN users.role IS 'Role on the platform: user or admin.';
COMMENT ON COLUMN users.status IS 'enabled, disabled or deleted (removed for good after the grace period).';
COMMENT ON COLUMN users.created_by IS 'Id of the user who created the account; NULL where the user signed up.';
COMMENT ON COLUMN users.created_at IS 'When it was created.';
COMMENT ON COLUMN users.updated_by IS 'Id of the user who last changed it; NULL: it was never changed.';
COMMENT ON COLUMN users.updated_at IS 'When it was last changed; NULL: never.';
COMMENT ON COLUMN users.verified_at IS 'When the mail address was confirmed; NULL: it was not.';
COMMENT ON COLUMN users.deleted_at IS 'When the user was deleted; NULL: it was not.';
COMMENT ON COLUMN users.quotas IS 'Quotas that a platform administrator set, as a number for each name; absent: the default.';
CREATE INDEX users_created_by ON users (created_by);
CREATE INDEX users_deleted ON users (deleted_at) WHERE status = 'deleted';
CREATE UNIQUE INDEX users_email_key ON users (lower(email));
CREATE INDEX users_email_trgm ON users USING gin (email gin_trgm_ops);
CREATE INDEX users_first_name_trgm ON users USING gin (first_name gin_trgm_ops);
CREATE INDEX users_last_name_trgm ON users USING gin (last_name gin_trgm_ops);
CREATE INDEX users_name_trgm ON users USING gin (name gin_trgm_ops);
-- Listings of platform administrators; everybody else finds users by grants and by created_by.
CREATE INDEX users_page ON users (status, coalesce(updated_at, created_at), created_at, id);
CREATE UNIQUE INDEX users_username_key ON users (lower(username));
-- Processes read all quotas when they start.
CREATE INDEX users_quotas ON users (key) WHERE quotas <> '{}';
CREATE INDEX users_username_trgm ON users USING gin (username gin_trgm_ops);

CREATE TABLE user_unique_names (
  kind text CONSTRAINT user_unique_names_kind_check CHECK (kind IN ('first_name', 'last_name')),
  value text,
  user_key bigint NOT NULL CONSTRAINT user_unique_names_user_fkey REFERENCES users (key) ON DELETE CASCADE,
  CONSTRAINT user_unique_names_pkey PRIMARY KEY (kind, value)
);
COMMENT ON TABLE user_unique_names IS 'First and last names that must be unique. Empty while that rule is off.';
COMMENT ON COLUMN user_unique_names.kind IS 'first_name or last_name.';
COMMENT ON COLUMN user_unique_names.value IS 'The name.';
COMMENT ON COLUMN user_unique_names.user_key IS 'The user who has it.';
CREATE INDEX user_unique_names_user ON user_unique_names (user_key);

CREATE TABLE sessions (
  id uuid CONSTRAINT sessions_pkey PRIMARY KEY,
  user_key bigint NOT NULL CONSTRAINT sessions_user_fkey REFERENCES users (key) ON DELETE CASCADE,
  domain_key bigint,
  generation integer NOT NULL DEFAULT 0,
  cookie_hash bytea,
  address text,
  user_agent text,
  created_at timestamptz NOT NULL DEFAULT now(),
  last_used_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL,
  revoked_at timestamptz
);
COMMENT ON TABLE sessions IS 'A login and everything refreshed from it. Only the refresh token of the current generation is valid: an older one that is presented was copied, and ends the session.';
COMMENT ON COLUMN sessions.id IS 'Id of the session, which its tokens carry.';
COMMENT ON COLUMN sessions.user_key IS 'The user who logged in.';
COMMENT ON COLUMN sessions.domain_key IS 'Domain to which the login is bound; NULL: none.';
COMMENT ON COLUMN sessions.generation IS 'Number of refreshes. A refresh token names the generation that it belongs to.';
COMMENT ON COLUMN sessions.cookie_hash IS 'SHA-256 of the cookie of a browser session, which has no refresh token; NULL: a login with tokens.';
COMMENT ON COLUMN sessions.address IS 'Network address from which the user logged in.';
COMMENT ON COLUMN sessions.user_agent IS 'User-Agent header of the login.';
COMMENT ON COLUMN sessions.created_at IS 'When the user logged in.';
COMMENT ON COLUMN sessions.last_used_at IS 'When the session was last refreshed.';
COMMENT ON COLUMN sessions.expires_at IS 'When the refresh token or the cookie expires.';
COMMENT ON COLUMN sessions.revoked_at IS 'When the session was ended before its time; NULL: it was not.';
CREATE INDEX sessions_expiry ON sessions (expires_at);
CREATE UNIQUE INDEX sessions_cookie ON sessions (cookie_hash) WHERE cookie_hash IS NOT NULL;
CREATE INDEX sessions_user ON sessions (user_key, expires_at);
-- The list of sessions of a user, newest first.
CREATE INDEX sessions_page ON sessions (user_key, created_at DESC, id);

CREATE TABLE known_addresses (
  user_key bigint CONSTRAINT known_addresses_user_fkey REFERENCES users (key) ON DELETE CASCADE,
  address text,
  last_success_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT known_addresses_pkey PRIMARY KEY (user_key, address)
);
COMMENT ON TABLE known_addresses IS 'Addresses from which a user has logged in. These addresses are not locked out while another address guesses the password.';
COMMENT ON COLUMN known_addresses.user_key IS 'The user.';
COMMENT ON COLUMN known_addresses.address IS 'IPv4 address, or the first 64 bits of an IPv6 address.';
COMMENT ON COLUMN known_addresses.last_success_at IS 'When the user last logged in from there.';

CREATE TABLE mailed_tokens (
  token_hash bytea CONSTRAINT mailed_tokens_pkey PRIMARY KEY,
  user_key bigint NOT NULL CONSTRAINT mailed_tokens_user_fkey REFERENCES users (key) ON DELETE CASCADE,
  purpose text NOT NULL CONSTRAINT mailed_tokens_purpose_check CHECK (purpose IN ('recovery', 'verification')),
  email text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL
);
COMMENT ON TABLE mailed_tokens IS 'Tokens sent by mail as links. A token is invalid when its row was deleted or has expired, or when the email address of the user has changed.';
COMMENT ON COLUMN mailed_tokens.token_hash IS 'SHA-256 of the token; only the mail holds the token itself.';
COMMENT ON COLUMN mailed_tokens.user_key IS 'The user it was sent to.';
COMMENT ON COLUMN mailed_tokens.purpose IS 'recovery (of the password) or verification (of the mail address).';
COMMENT ON COLUMN mailed_tokens.email IS 'Mail address it was sent to.';
COMMENT ON COLUMN mailed_tokens.created_at IS 'When it was created.';
COMMENT ON COLUMN mailed_tokens.expires_at IS 'When it expires.';
CREATE INDEX mailed_tokens_expiry ON mailed_tokens (expires_at);
CREATE INDEX mailed_tokens_user ON mailed_tokens (user_key, purpose, created_at);

CREATE TABLE signing_keys (
  kid text CONSTRAINT signing_keys_pkey PRIMARY KEY,
  public_key bytea NOT NULL,
  sealed_private_key bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  retired_at timestamptz,
  max_token_seconds bigint NOT NULL DEFAULT 86400 CONSTRAINT signing_keys_max_token_check CHECK (max_token_seconds > 0)
);
COMMENT ON TABLE signing_keys IS 'Keys that sign access tokens, refresh tokens and API keys.';
COMMENT ON COLUMN signing_keys.kid IS 'Key id, which each token names.';
COMMENT ON COLUMN signing_keys.public_key IS 'Public half of the key.';
COMMENT ON COLUMN signing_keys.sealed_private_key IS 'Private half, encrypted with a key derived from SKEIN_SECRET_KEY.';
COMMENT ON COLUMN signing_keys.created_at IS 'When it was created.';
COMMENT ON COLUMN signing_keys.retired_at IS 'When the key stopped signing; NULL: it signs. It verifies until the tokens that it signed have expired.';
COMMENT ON COLUMN signing_keys.max_token_seconds IS 'Longest lifetime in seconds of a token that the key signs: how long it verifies after it was retired.';

CREATE TABLE domains (
  key bigint DEFAULT nextval('entity_keys') CONSTRAINT domains_pkey PRIMARY KEY,
  id uuid NOT NULL CONSTRAINT domains_id_key UNIQUE,
  name text NOT NULL,
  route text NOT NULL,
  tags text[] NOT NULL DEFAULT '{}',
  metadata jsonb NOT NULL DEFAULT '{}',
  status text NOT NULL DEFAULT 'enabled'
    CONSTRAINT domains_status_check CHECK (status IN ('enabled', 'disabled', 'freezed', 'deleted')),
  retention_days integer CONSTRAINT domains_retention_check CHECK (retention_days > 0),
  home smallint NOT NULL DEFAULT 0,
  created_by uuid,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_by uuid,
  updated_at timestamptz,
  deleted_at timestamptz,
  purge_started_at timestamptz,
  quotas jsonb NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE domains IS 'Tenants. Every client, channel and group belongs to one domain.';
COMMENT ON COLUMN domains.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN domains.id IS 'Id that users see.';
COMMENT ON COLUMN domains.name IS 'Name of the domain.';
COMMENT ON COLUMN domains.route IS 'Value that the API calls alias and route, unique without regard to case.';
COMMENT ON COLUMN domains.tags IS 'Tags that users give it.';
COMMENT ON COLUMN domains.metadata IS 'Free-form JSON that users store with it.';
COMMENT ON COLUMN domains.status IS 'enabled, disabled, freezed (by a platform administrator) or deleted.';
COMMENT ON COLUMN domains.retention_days IS 'Retention of messages in days; NULL: unlimited.';
COMMENT ON COLUMN domains.home IS 'Number of the database that holds the domain: 0 as long as there is one.';
COMMENT ON COLUMN domains.created_by IS 'Id of the user who created it.';
COMMENT ON COLUMN domains.created_at IS 'When it was created.';
COMMENT ON COLUMN domains.updated_by IS 'Id of the user who last changed it; NULL: it was never changed.';
COMMENT ON COLUMN domains.updated_at IS 'When it was last changed; NULL: never.';
COMMENT ON COLUMN domains.deleted_at IS 'When the domain was deleted; NULL: it was not.';
COMMENT ON COLUMN domains.purge_started_at IS 'When the removal of the domain''s data began, after the grace period; from then on the domain cannot be restored.';
COMMENT ON COLUMN domains.quotas IS 'Quotas that a platform administrator set, as a number for each name; absent: the default.';
CREATE INDEX domains_created_by ON domains (created_by);
CREATE INDEX domains_deleted ON domains (deleted_at) WHERE status = 'deleted';
CREATE INDEX domains_name_trgm ON domains USING gin (name gin_trgm_ops);
-- Listings of platform administrators; everybody else finds domains by grants.
CREATE INDEX domains_page ON domains (status, coalesce(updated_at, created_at), created_at, id);
CREATE INDEX domains_quotas ON domains (key) WHERE quotas <> '{}';
CREATE UNIQUE INDEX domains_route_key ON domains (lower(route));

CREATE TABLE domain_quota_days (
  domain_key bigint CONSTRAINT domain_quota_days_domain_key_fkey REFERENCES domains (key) ON DELETE CASCADE,
  day date,
  quota text,
  source text,
  used double precision NOT NULL,
  CONSTRAINT domain_quota_days_pkey PRIMARY KEY (domain_key, day, quota, source)
);
COMMENT ON TABLE domain_quota_days IS 'What domains used of their daily quotas, kept for a week.';
COMMENT ON COLUMN domain_quota_days.domain_key IS 'The domain.';
COMMENT ON COLUMN domain_quota_days.day IS 'Day in UTC.';
COMMENT ON COLUMN domain_quota_days.quota IS 'Name of the quota.';
COMMENT ON COLUMN domain_quota_days.source IS 'The task manager that counted, so that managers do not wait for each other; empty: all processes together.';
COMMENT ON COLUMN domain_quota_days.used IS 'Amount that was used, in the unit of the quota.';
CREATE INDEX domain_quota_days_day ON domain_quota_days (day);

CREATE TABLE api_keys (
  key bigint DEFAULT nextval('entity_keys') CONSTRAINT api_keys_pkey PRIMARY KEY,
  id uuid NOT NULL CONSTRAINT api_keys_id_key UNIQUE,
  user_key bigint NOT NULL CONSTRAINT api_keys_user_fkey REFERENCES users (key) ON DELETE CASCADE,
  domain_key bigint CONSTRAINT api_keys_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  token_hash bytea NOT NULL,
  kid text NOT NULL,
  issued_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz,
  last_used_at timestamptz
);
COMMENT ON TABLE api_keys IS 'API keys of users: signed tokens that are valid only while their row exists.';
COMMENT ON COLUMN api_keys.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN api_keys.id IS 'Id that users see.';
COMMENT ON COLUMN api_keys.user_key IS 'The user the key acts as.';
COMMENT ON COLUMN api_keys.domain_key IS 'Domain to which the creating login was bound; NULL: none.';
COMMENT ON COLUMN api_keys.token_hash IS 'SHA-256 of the whole token: a forged signature alone makes no valid key.';
COMMENT ON COLUMN api_keys.kid IS 'Signing key of the token, which verifies as long as this row exists.';
COMMENT ON COLUMN api_keys.issued_at IS 'When it was issued.';
COMMENT ON COLUMN api_keys.expires_at IS 'When it expires; NULL: never.';
COMMENT ON COLUMN api_keys.last_used_at IS 'When it was last used; NULL: never.';
CREATE INDEX api_keys_domain ON api_keys (domain_key);
CREATE INDEX api_keys_expiry ON api_keys (expires_at);
CREATE INDEX api_keys_kid ON api_keys (kid);
CREATE INDEX api_keys_user ON api_keys (user_key, issued_at DESC, id);

CREATE TABLE pats (
  key bigint DEFAULT nextval('entity_keys') CONSTRAINT pats_pkey PRIMARY KEY,
  id uuid NOT NULL CONSTRAINT pats_id_key UNIQUE,
  user_key bigint NOT NULL CONSTRAINT pats_user_fkey REFERENCES users (key) ON DELETE CASCADE,
  name text NOT NULL,
  description text NOT NULL DEFAULT '',
  secret_hash bytea NOT NULL,
  issued_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL,
  updated_at timestamptz,
  last_used_at timestamptz,
  revoked_at timestamptz
);
COMMENT ON TABLE pats IS 'Personal access tokens of users.';
COMMENT ON COLUMN pats.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN pats.id IS 'Id that users see.';
COMMENT ON COLUMN pats.user_key IS 'The user the token acts as.';
COMMENT ON COLUMN pats.name IS 'Name of the token.';
COMMENT ON COLUMN pats.description IS 'Description of the token.';
COMMENT ON COLUMN pats.secret_hash IS 'SHA-256 of the whole token, which holds 32 random bytes.';
COMMENT ON COLUMN pats.issued_at IS 'When the token was issued.';
COMMENT ON COLUMN pats.expires_at IS 'When it expires.';
COMMENT ON COLUMN pats.updated_at IS 'When it was last changed; NULL: never.';
COMMENT ON COLUMN pats.last_used_at IS 'When it was last used; NULL: never.';
COMMENT ON COLUMN pats.revoked_at IS 'When it was revoked; NULL: it was not.';
CREATE INDEX pats_user ON pats (user_key, issued_at DESC, id);

CREATE TABLE pat_scopes (
  key bigint DEFAULT nextval('entity_keys') CONSTRAINT pat_scopes_pkey PRIMARY KEY,
  id uuid NOT NULL CONSTRAINT pat_scopes_id_key UNIQUE,
  pat_key bigint NOT NULL CONSTRAINT pat_scopes_pat_fkey REFERENCES pats (key) ON DELETE CASCADE,
  entity_type text NOT NULL,
  operation text NOT NULL,
  domain_key bigint CONSTRAINT pat_scopes_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  entity_id uuid,
  entity_key bigint,
  CONSTRAINT pat_scopes_scope_key UNIQUE NULLS NOT DISTINCT (pat_key, entity_type, operation, domain_key, entity_id, entity_key)
);
COMMENT ON TABLE pat_scopes IS 'What a personal access token may do. Entities are named by key, so that another entity with the same id later is not meant.';
COMMENT ON COLUMN pat_scopes.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN pat_scopes.id IS 'Id that users see.';
COMMENT ON COLUMN pat_scopes.pat_key IS 'The token.';
COMMENT ON COLUMN pat_scopes.entity_type IS 'Type of the entities that the scope names.';
COMMENT ON COLUMN pat_scopes.operation IS 'Operation that the scope allows.';
COMMENT ON COLUMN pat_scopes.domain_key IS 'Domain of the entities; NULL: none was named.';
COMMENT ON COLUMN pat_scopes.entity_id IS 'Id as the owner wrote it; NULL: any entity. Without entity_key it names nothing that exists.';
COMMENT ON COLUMN pat_scopes.entity_key IS 'The entity; NULL: any, or one that did not exist.';
CREATE INDEX pat_scopes_domain ON pat_scopes (domain_key);

--
-- Identity: groups, roles and their members
--

CREATE TABLE groups (
  key bigint DEFAULT nextval('entity_keys') CONSTRAINT groups_pkey PRIMARY KEY,
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
COMMENT ON TABLE groups IS 'Groups of clients and channels, in trees of at most 21 levels.';
COMMENT ON COLUMN groups.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN groups.domain_key IS 'Domain that it belongs to.';
COMMENT ON COLUMN groups.id IS 'Id that users see, unique within the domain.';
COMMENT ON COLUMN groups.parent_key IS 'Group that holds this one; NULL: none.';
COMMENT ON COLUMN groups.name IS 'Name of the group.';
COMMENT ON COLUMN groups.description IS 'Description of the group.';
COMMENT ON COLUMN groups.tags IS 'Tags that users give it.';
COMMENT ON COLUMN groups.metadata IS 'Free-form JSON that users store with it.';
COMMENT ON COLUMN groups.status IS 'enabled or disabled.';
COMMENT ON COLUMN groups.created_by IS 'Id of the user who created it.';
COMMENT ON COLUMN groups.created_at IS 'When it was created.';
COMMENT ON COLUMN groups.updated_by IS 'Id of the user who last changed it; NULL: it was never changed.';
COMMENT ON COLUMN groups.updated_at IS 'When it was last changed; NULL: never.';
CREATE INDEX groups_created_by ON groups (domain_key, created_by, status);
-- A path without a domain names a group by its id alone.
CREATE INDEX groups_id ON groups (id);
CREATE INDEX groups_metadata ON groups USING gin (metadata jsonb_path_ops);
CREATE INDEX groups_name_trgm ON groups USING gin (name gin_trgm_ops);
CREATE INDEX groups_page ON groups (domain_key, status, coalesce(updated_at, created_at), created_at, id);
CREATE INDEX groups_page_any_status ON groups (domain_key, coalesce(updated_at, created_at), created_at, id);
-- Listings in the order of creation, as for clients and channels.
CREATE INDEX groups_page_created ON groups (domain_key, created_at, id);
CREATE INDEX groups_page_long_name ON groups (domain_key, left(name, 256), created_at, id) WHERE char_length(name) > 256;
CREATE INDEX groups_page_short_name
  ON groups (domain_key, name, created_at, id) INCLUDE (key, status) WHERE char_length(name) <= 256;
CREATE INDEX groups_parent ON groups (parent_key);
CREATE INDEX groups_tags ON groups USING gin (tags);

CREATE TABLE group_closure (
  ancestor_key bigint CONSTRAINT group_closure_ancestor_fkey REFERENCES groups (key) ON DELETE CASCADE,
  descendant_key bigint CONSTRAINT group_closure_descendant_fkey REFERENCES groups (key) ON DELETE CASCADE,
  depth smallint NOT NULL CONSTRAINT group_closure_depth_check CHECK (depth BETWEEN 0 AND 20),
  CONSTRAINT group_closure_pkey PRIMARY KEY (ancestor_key, descendant_key)
);
COMMENT ON TABLE group_closure IS 'Every pair of a group and a group at or below it. A group is its own descendant at depth 0.';
COMMENT ON COLUMN group_closure.ancestor_key IS 'The upper group.';
COMMENT ON COLUMN group_closure.descendant_key IS 'The lower group.';
COMMENT ON COLUMN group_closure.depth IS 'Number of levels between them.';
CREATE INDEX group_closure_descendant ON group_closure (descendant_key, depth);

CREATE TABLE roles (
  key bigint DEFAULT nextval('entity_keys') CONSTRAINT roles_pkey PRIMARY KEY,
  id text NOT NULL CONSTRAINT roles_id_key UNIQUE,
  entity_type text NOT NULL CONSTRAINT roles_entity_type_check CHECK (entity_type IN ('domain', 'group', 'channel', 'client')),
  domain_key bigint NOT NULL CONSTRAINT roles_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  entity_key bigint NOT NULL,
  name text NOT NULL CONSTRAINT roles_name_check CHECK (name <> 'admin'),
  actions text[] NOT NULL DEFAULT '{}',
  created_by uuid,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_by uuid,
  updated_at timestamptz,
  CONSTRAINT roles_entity_name_key UNIQUE (entity_key, name)
);
COMMENT ON TABLE roles IS 'Roles of domains, groups, channels and clients. The built-in role "admin" has no row: its id derives from the key of its entity, its actions stand in the code, and its members are grants with role_key 0.';
COMMENT ON COLUMN roles.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN roles.id IS 'Public id of the role.';
COMMENT ON COLUMN roles.entity_type IS 'Type of the entity: domain, group, channel or client.';
COMMENT ON COLUMN roles.domain_key IS 'Domain of the entity.';
COMMENT ON COLUMN roles.entity_key IS 'Entity on which the role gives actions.';
COMMENT ON COLUMN roles.name IS 'Name of the role, unique for its entity.';
COMMENT ON COLUMN roles.actions IS 'Actions that members may take.';
COMMENT ON COLUMN roles.created_by IS 'Id of the user who created it.';
COMMENT ON COLUMN roles.created_at IS 'When it was created.';
COMMENT ON COLUMN roles.updated_by IS 'Id of the user who last changed it; NULL: it was never changed.';
COMMENT ON COLUMN roles.updated_at IS 'When it was last changed; NULL: never.';
CREATE INDEX roles_domain ON roles (domain_key);

CREATE TABLE grants (
  user_key bigint CONSTRAINT grants_user_fkey REFERENCES users (key) ON DELETE CASCADE,
  entity_type text CONSTRAINT grants_entity_type_check CHECK (entity_type IN ('domain', 'group', 'channel', 'client')),
  domain_key bigint CONSTRAINT grants_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  entity_key bigint,
  role_key bigint DEFAULT 0,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT grants_pkey PRIMARY KEY (user_key, domain_key, entity_type, entity_key, role_key)
);
COMMENT ON TABLE grants IS 'Members of roles: one row per user, role and entity.';
COMMENT ON COLUMN grants.user_key IS 'The member.';
COMMENT ON COLUMN grants.entity_type IS 'Type of the entity: domain, group, channel or client.';
COMMENT ON COLUMN grants.domain_key IS 'Domain of the entity.';
COMMENT ON COLUMN grants.entity_key IS 'Entity of the role.';
COMMENT ON COLUMN grants.role_key IS 'The role; 0: the built-in role "admin".';
COMMENT ON COLUMN grants.created_at IS 'When the user became a member.';
CREATE INDEX grants_domain ON grants (domain_key, entity_type);
CREATE INDEX grants_entity ON grants (entity_key, role_key);

CREATE TABLE invitations (
  domain_key bigint CONSTRAINT invitations_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  user_key bigint CONSTRAINT invitations_user_fkey REFERENCES users (key) ON DELETE CASCADE,
  invited_by uuid NOT NULL,
  role_key bigint NOT NULL,
  relation text,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz,
  expires_at timestamptz NOT NULL,
  confirmed_at timestamptz,
  rejected_at timestamptz,
  CONSTRAINT invitations_pkey PRIMARY KEY (domain_key, user_key),
  CONSTRAINT invitations_answer_check CHECK (confirmed_at IS NULL OR rejected_at IS NULL)
);
COMMENT ON TABLE invitations IS 'One per user and domain. It stays when it was answered, so that its sender sees the answer.';
COMMENT ON COLUMN invitations.domain_key IS 'Domain to which the user is invited.';
COMMENT ON COLUMN invitations.user_key IS 'The invited user.';
COMMENT ON COLUMN invitations.invited_by IS 'Id of the user who sent it.';
COMMENT ON COLUMN invitations.role_key IS 'Role that the user gets; 0: the built-in role "admin". No reference: the role may be removed while the invitation waits, and no key is used twice.';
COMMENT ON COLUMN invitations.relation IS 'Word of the older API that stands for the role; NULL: the invitation named the role itself.';
COMMENT ON COLUMN invitations.created_at IS 'When it was sent.';
COMMENT ON COLUMN invitations.updated_at IS 'When it was last changed; NULL: never.';
COMMENT ON COLUMN invitations.expires_at IS 'When it can no longer be accepted.';
COMMENT ON COLUMN invitations.confirmed_at IS 'When it was accepted; NULL: it was not.';
COMMENT ON COLUMN invitations.rejected_at IS 'When it was rejected; NULL: it was not.';
CREATE INDEX invitations_inviter ON invitations (invited_by);
CREATE INDEX invitations_user ON invitations (user_key);

--
-- Identity: the journal
--

CREATE TABLE journal (
  xid xid8 DEFAULT position_xid(),
  seq bigint GENERATED ALWAYS AS IDENTITY,
  occurred_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  operation text NOT NULL,
  domain_key bigint,
  actor_kind text NOT NULL CONSTRAINT journal_actor_kind_check CHECK (actor_kind IN ('user', 'client', 'system')),
  actor_key bigint,
  actor_id uuid,
  address text,
  request_id text,
  entity_keys bigint[] NOT NULL,
  attributes jsonb NOT NULL DEFAULT '{}',
  token_type text,
  super_admin boolean NOT NULL DEFAULT false,
  CONSTRAINT journal_pkey PRIMARY KEY (xid, seq)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.02);
COMMENT ON TABLE journal IS 'Every change of an entity, one row per call, written in the transaction of the change. Consumers follow it by position (xid, seq); users read it as the audit trail.';
COMMENT ON COLUMN journal.xid IS 'First half of the position: the transaction of the change.';
COMMENT ON COLUMN journal.seq IS 'Second half of the position.';
COMMENT ON COLUMN journal.occurred_at IS 'When the change was made.';
COMMENT ON COLUMN journal.operation IS '`<entity>.<what>`, for example client.create.';
COMMENT ON COLUMN journal.domain_key IS 'Domain that the change belongs to; NULL: none.';
COMMENT ON COLUMN journal.actor_kind IS 'Who made the change: user, client or system.';
COMMENT ON COLUMN journal.actor_key IS 'Key of the user or client who made it; NULL for the system.';
COMMENT ON COLUMN journal.actor_id IS 'Id of the user or client who made it; NULL for the system.';
COMMENT ON COLUMN journal.address IS 'Network address of the caller.';
COMMENT ON COLUMN journal.request_id IS 'Id of the request, which logs carry too.';
COMMENT ON COLUMN journal.entity_keys IS 'Keys of everything that changed: what caches must drop.';
COMMENT ON COLUMN journal.attributes IS 'What the change set, without secrets.';
COMMENT ON COLUMN journal.token_type IS 'Kind of token that the caller used; NULL: none.';
COMMENT ON COLUMN journal.super_admin IS 'Whether the caller administers the platform.';
CREATE INDEX journal_domain_operation ON journal (domain_key, operation, occurred_at, xid, seq);
CREATE INDEX journal_domain_position ON journal (domain_key, xid, seq);
CREATE INDEX journal_domain_time ON journal (domain_key, occurred_at, xid, seq);

CREATE TABLE journal_subjects (
  entity_key bigint,
  occurred_at timestamptz,
  xid xid8,
  seq bigint,
  operation text NOT NULL,
  CONSTRAINT journal_subjects_pkey PRIMARY KEY (entity_key, occurred_at, xid, seq) INCLUDE (operation)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.02);
COMMENT ON TABLE journal_subjects IS 'One row per entity that a journal record names, its actor included: the journal of an entity.';
COMMENT ON COLUMN journal_subjects.entity_key IS 'The entity or actor.';
COMMENT ON COLUMN journal_subjects.occurred_at IS 'As in journal.';
COMMENT ON COLUMN journal_subjects.xid IS 'As in journal.';
COMMENT ON COLUMN journal_subjects.seq IS 'As in journal.';
COMMENT ON COLUMN journal_subjects.operation IS 'As in journal.';

-- A trigger, so that every writer of the journal feeds it.
CREATE FUNCTION add_journal_subjects() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO journal_subjects (entity_key, occurred_at, xid, seq, operation)
  SELECT DISTINCT subject.key, new_rows.occurred_at, new_rows.xid, new_rows.seq, new_rows.operation
    FROM new_rows, unnest(new_rows.entity_keys || new_rows.actor_key) AS subject (key)
   WHERE subject.key > 0;
  RETURN NULL;
END
$$;

CREATE TRIGGER journal_subjects_added AFTER INSERT ON journal
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION add_journal_subjects();

CREATE TABLE journal_totals (
  scope_key bigint,
  operation text,
  total bigint NOT NULL,
  CONSTRAINT journal_totals_pkey PRIMARY KEY (scope_key, operation)
);
COMMENT ON TABLE journal_totals IS 'How many journal records a domain and a user have of each operation, up to the position of the consumer that counts them: counting millions for each page would take seconds.';
COMMENT ON COLUMN journal_totals.scope_key IS 'Domain or user.';
COMMENT ON COLUMN journal_totals.operation IS 'As in journal.';
COMMENT ON COLUMN journal_totals.total IS 'Number of records.';

CREATE TABLE journal_days (
  scope_key bigint,
  day date,
  operation text,
  total bigint NOT NULL,
  CONSTRAINT journal_days_pkey PRIMARY KEY (scope_key, day, operation)
);
COMMENT ON TABLE journal_days IS 'As journal_totals, per day: a page of the journal far behind the first begins at its day.';
COMMENT ON COLUMN journal_days.scope_key IS 'Domain or user.';
COMMENT ON COLUMN journal_days.day IS 'Day in UTC.';
COMMENT ON COLUMN journal_days.operation IS 'As in journal.';
COMMENT ON COLUMN journal_days.total IS 'Number of records.';

-- A trigger, so that no removal of journal records is missed. No record is removed before every consumer has read it.
CREATE FUNCTION subtract_journal_days() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  MERGE INTO journal_days d USING (
    SELECT scope.key, (old_rows.occurred_at AT TIME ZONE 'UTC')::date AS day, old_rows.operation, count(*) AS total
      FROM old_rows CROSS JOIN LATERAL (
        SELECT DISTINCT key FROM unnest(old_rows.entity_keys || old_rows.actor_key || old_rows.domain_key) AS named (key)) scope
     GROUP BY 1, 2, 3) subtracted
     ON d.scope_key = subtracted.key AND d.day = subtracted.day AND d.operation = subtracted.operation
   WHEN MATCHED AND d.total <= subtracted.total THEN DELETE
   WHEN MATCHED THEN UPDATE SET total = d.total - subtracted.total;
  RETURN NULL;
END
$$;

CREATE TRIGGER journal_days_subtracted AFTER DELETE ON journal
  REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION subtract_journal_days();

CREATE TABLE removed_entities (
  key bigint CONSTRAINT removed_entities_pkey PRIMARY KEY,
  type text NOT NULL,
  domain_key bigint,
  id uuid NOT NULL,
  parent_group_key bigint,
  removed_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE removed_entities IS 'Keys of removed entities by id. The journal of a removed entity is read by its id, and the group that held the entity decides who can read it.';
COMMENT ON COLUMN removed_entities.key IS 'Key that the entity had.';
COMMENT ON COLUMN removed_entities.type IS 'user, domain, group, channel or client.';
COMMENT ON COLUMN removed_entities.domain_key IS 'Domain that it belonged to; NULL for users and domains.';
COMMENT ON COLUMN removed_entities.id IS 'Id that it had.';
COMMENT ON COLUMN removed_entities.parent_group_key IS 'Group that held it; NULL: none.';
COMMENT ON COLUMN removed_entities.removed_at IS 'When it was removed.';
CREATE INDEX removed_entities_domain ON removed_entities (domain_key);
CREATE INDEX removed_entities_id ON removed_entities (id, type);
CREATE INDEX removed_entities_time ON removed_entities (removed_at);

-- Triggers, because rows are also removed by cascades. The argument is the type of entity.
CREATE FUNCTION store_removed_entities() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_TABLE_NAME = 'users' THEN
    INSERT INTO removed_entities (key, type, id) SELECT key, 'user', id FROM old_rows;
  ELSIF TG_TABLE_NAME = 'domains' THEN
    DELETE FROM removed_entities d USING old_rows WHERE d.domain_key = old_rows.key;
    INSERT INTO removed_entities (key, type, id) SELECT key, 'domain', id FROM old_rows;
  ELSIF TG_TABLE_NAME = 'groups' THEN
    INSERT INTO removed_entities (key, type, domain_key, id, parent_group_key)
    SELECT key, 'group', domain_key, id, parent_key FROM old_rows
     WHERE EXISTS (SELECT FROM domains d WHERE d.key = old_rows.domain_key);
  ELSE
    INSERT INTO removed_entities (key, type, domain_key, id, parent_group_key)
    SELECT key, TG_ARGV[0], domain_key, id, parent_group_key FROM old_rows
     WHERE EXISTS (SELECT FROM domains d WHERE d.key = old_rows.domain_key);
  END IF;
  RETURN NULL;
END
$$;

CREATE TRIGGER users_removed AFTER DELETE ON users
  REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION store_removed_entities();
CREATE TRIGGER domains_removed AFTER DELETE ON domains
  REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION store_removed_entities();
CREATE TRIGGER groups_removed AFTER DELETE ON groups
  REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION store_removed_entities();

--
-- Devices: clients, channels and the connections between them
--

CREATE TABLE clients (
  key bigint DEFAULT nextval('entity_keys') CONSTRAINT clients_pkey PRIMARY KEY,
  domain_key bigint NOT NULL CONSTRAINT clients_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  id uuid NOT NULL,
  name text NOT NULL DEFAULT '',
  tags text[] NOT NULL DEFAULT '{}',
  identity text NOT NULL DEFAULT '',
  secret_mac bytea NOT NULL,
  secret_sealed bytea NOT NULL,
  metadata jsonb NOT NULL DEFAULT '{}',
  private_metadata jsonb NOT NULL DEFAULT '{}',
  status text NOT NULL DEFAULT 'enabled' CONSTRAINT clients_status_check CHECK (status IN ('enabled', 'disabled')),
  parent_group_key bigint CONSTRAINT clients_parent_group_fkey REFERENCES groups (key) ON DELETE SET NULL,
  created_by uuid,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_by uuid,
  updated_at timestamptz,
  CONSTRAINT clients_id_key UNIQUE (domain_key, id),
  CONSTRAINT clients_secret_key UNIQUE (domain_key, secret_mac)
);
COMMENT ON TABLE clients IS 'Devices and applications that publish and subscribe.';
COMMENT ON COLUMN clients.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN clients.domain_key IS 'Domain that it belongs to.';
COMMENT ON COLUMN clients.id IS 'Id that users see, unique within the domain: it may come from outside.';
COMMENT ON COLUMN clients.name IS 'Name of the client.';
COMMENT ON COLUMN clients.tags IS 'Tags that users give it.';
COMMENT ON COLUMN clients.identity IS 'User name that the client logs in with; may be empty.';
COMMENT ON COLUMN clients.secret_mac IS 'Keyed digest of the secret, for the lookup.';
COMMENT ON COLUMN clients.secret_sealed IS 'The secret itself, encrypted, for the listings.';
COMMENT ON COLUMN clients.metadata IS 'Free-form JSON that users store with it.';
COMMENT ON COLUMN clients.private_metadata IS 'Free-form JSON for users who may update it; hidden from others.';
COMMENT ON COLUMN clients.status IS 'enabled or disabled.';
COMMENT ON COLUMN clients.parent_group_key IS 'Group that holds the client; NULL: none.';
COMMENT ON COLUMN clients.created_by IS 'Id of the user who created it.';
COMMENT ON COLUMN clients.created_at IS 'When it was created.';
COMMENT ON COLUMN clients.updated_by IS 'Id of the user who last changed it; NULL: it was never changed.';
COMMENT ON COLUMN clients.updated_at IS 'When it was last changed; NULL: never.';
CREATE INDEX clients_created_by ON clients (domain_key, created_by, status);
CREATE INDEX clients_metadata ON clients USING gin (metadata jsonb_path_ops);
CREATE INDEX clients_name_trgm ON clients USING gin (name gin_trgm_ops);
-- A page is found in the index alone, so a row that is skipped costs no visit to the table. Columns of an expression must be in
-- the index too, or PostgreSQL visits the table to compute it again.
CREATE INDEX clients_page
  ON clients (domain_key, status, coalesce(updated_at, created_at), created_at, id) INCLUDE (key, updated_at, parent_group_key);
CREATE INDEX clients_page_any_status
  ON clients (domain_key, coalesce(updated_at, created_at), created_at, id) INCLUDE (key, updated_at, status, parent_group_key);
-- What roles on single clients give access to is counted and sorted in this index alone.
CREATE INDEX clients_page_by_key ON clients (key) INCLUDE (id, status, parent_group_key, created_at, updated_at);
CREATE INDEX clients_page_created ON clients (domain_key, created_at, id) INCLUDE (key, status, parent_group_key);
CREATE INDEX clients_page_long_name ON clients (domain_key, left(name, 256), created_at, id) WHERE char_length(name) > 256;
-- Names are sorted by their first 256 characters. Shorter names are a column of this index; the few longer ones, too long for
-- an index entry, have an index of their own.
CREATE INDEX clients_page_short_name
  ON clients (domain_key, name, created_at, id) INCLUDE (key, status, parent_group_key) WHERE char_length(name) <= 256;
CREATE INDEX clients_parent_group ON clients (parent_group_key) INCLUDE (key, status) WHERE parent_group_key IS NOT NULL;
-- A device on a path without a domain is found by its secret alone.
CREATE INDEX clients_secret ON clients (secret_mac);
CREATE INDEX clients_tags ON clients USING gin (tags);

CREATE TABLE channels (
  key bigint DEFAULT nextval('entity_keys') CONSTRAINT channels_pkey PRIMARY KEY,
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
COMMENT ON TABLE channels IS 'Channels that messages are published to.';
COMMENT ON COLUMN channels.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN channels.domain_key IS 'Domain that it belongs to.';
COMMENT ON COLUMN channels.id IS 'Id that users see, unique within the domain: it may come from outside.';
COMMENT ON COLUMN channels.name IS 'Name of the channel.';
COMMENT ON COLUMN channels.description IS 'Description of the channel.';
COMMENT ON COLUMN channels.route IS 'Second name of the channel in topics, unique within the domain without regard to case; NULL: none.';
COMMENT ON COLUMN channels.tags IS 'Tags that users give it.';
COMMENT ON COLUMN channels.metadata IS 'Free-form JSON that users store with it.';
COMMENT ON COLUMN channels.status IS 'enabled or disabled.';
COMMENT ON COLUMN channels.parent_group_key IS 'Group that holds the channel; NULL: none.';
COMMENT ON COLUMN channels.retention_days IS 'Retention of its messages in days; NULL: that of the domain.';
COMMENT ON COLUMN channels.created_by IS 'Id of the user who created it.';
COMMENT ON COLUMN channels.created_at IS 'When it was created.';
COMMENT ON COLUMN channels.updated_by IS 'Id of the user who last changed it; NULL: it was never changed.';
COMMENT ON COLUMN channels.updated_at IS 'When it was last changed; NULL: never.';
CREATE INDEX channels_created_by ON channels (domain_key, created_by, status);
-- A path without a domain names a channel by its id alone.
CREATE INDEX channels_id ON channels (id);
CREATE INDEX channels_metadata ON channels USING gin (metadata jsonb_path_ops);
CREATE INDEX channels_name_trgm ON channels USING gin (name gin_trgm_ops);
CREATE INDEX channels_page
  ON channels (domain_key, status, coalesce(updated_at, created_at), created_at, id) INCLUDE (key, updated_at, parent_group_key);
CREATE INDEX channels_page_any_status
  ON channels (domain_key, coalesce(updated_at, created_at), created_at, id) INCLUDE (key, updated_at, status, parent_group_key);
CREATE INDEX channels_page_by_key ON channels (key) INCLUDE (id, status, parent_group_key, created_at, updated_at);
CREATE INDEX channels_page_created ON channels (domain_key, created_at, id) INCLUDE (key, status, parent_group_key);
CREATE INDEX channels_page_long_name ON channels (domain_key, left(name, 256), created_at, id) WHERE char_length(name) > 256;
CREATE INDEX channels_page_short_name
  ON channels (domain_key, name, created_at, id) INCLUDE (key, status, parent_group_key) WHERE char_length(name) <= 256;
CREATE INDEX channels_parent_group ON channels (parent_group_key) INCLUDE (key, status) WHERE parent_group_key IS NOT NULL;
CREATE UNIQUE INDEX channels_route_key ON channels (domain_key, lower(route));
CREATE INDEX channels_tags ON channels USING gin (tags);

CREATE TABLE connections (
  client_key bigint CONSTRAINT connections_client_fkey REFERENCES clients (key) ON DELETE CASCADE,
  channel_key bigint CONSTRAINT connections_channel_fkey REFERENCES channels (key) ON DELETE CASCADE,
  domain_key bigint NOT NULL,
  types smallint NOT NULL CONSTRAINT connections_types_check CHECK (types BETWEEN 1 AND 3),
  created_by uuid,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz,
  CONSTRAINT connections_pkey PRIMARY KEY (client_key, channel_key)
);
COMMENT ON TABLE connections IS 'Which client may publish or subscribe on which channel.';
COMMENT ON COLUMN connections.client_key IS 'The client.';
COMMENT ON COLUMN connections.channel_key IS 'The channel.';
COMMENT ON COLUMN connections.domain_key IS 'Domain of both.';
COMMENT ON COLUMN connections.types IS 'Bits: 1 publish, 2 subscribe.';
COMMENT ON COLUMN connections.created_by IS 'Id of the user who created it.';
COMMENT ON COLUMN connections.created_at IS 'When it was created.';
COMMENT ON COLUMN connections.updated_at IS 'When it was last changed; NULL: never.';
CREATE INDEX connections_channel ON connections (channel_key, client_key);

CREATE TRIGGER clients_removed AFTER DELETE ON clients
  REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION store_removed_entities('client');
CREATE TRIGGER channels_removed AFTER DELETE ON channels
  REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION store_removed_entities('channel');

CREATE TABLE entity_counts (
  domain_key bigint NOT NULL,
  entity_type text NOT NULL,
  status text NOT NULL,
  amount bigint NOT NULL
);
COMMENT ON TABLE entity_counts IS 'How many clients, channels and groups a domain has of each status, for the totals of listings without a filter: the sum of amount over the rows of a domain, type and status. Each statement adds a row, so that none waits for another; the program replaces them by their sum from time to time.';
COMMENT ON COLUMN entity_counts.domain_key IS 'The domain.';
COMMENT ON COLUMN entity_counts.entity_type IS 'client, channel or group.';
COMMENT ON COLUMN entity_counts.status IS 'Status of the entities.';
COMMENT ON COLUMN entity_counts.amount IS 'How many more, or fewer where negative.';
CREATE INDEX entity_counts_domain ON entity_counts (domain_key, entity_type, status) INCLUDE (amount);

-- Triggers keep the counts, because rows are also removed by cascades. The argument is the type of entity.
CREATE FUNCTION count_entities() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO entity_counts SELECT domain_key, TG_ARGV[0], status, count(*) FROM new_rows GROUP BY domain_key, status;
  ELSIF TG_OP = 'DELETE' THEN
    INSERT INTO entity_counts SELECT domain_key, TG_ARGV[0], status, -count(*) FROM old_rows GROUP BY domain_key, status;
  ELSE
    INSERT INTO entity_counts
    SELECT domain_key, TG_ARGV[0], status, sum(amount)
      FROM (SELECT domain_key, status, 1 AS amount FROM new_rows UNION ALL SELECT domain_key, status, -1 FROM old_rows) changed
     GROUP BY domain_key, status HAVING sum(amount) <> 0;
  END IF;
  RETURN NULL;
END
$$;

CREATE TRIGGER channels_counted_deleted AFTER DELETE ON channels
  REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION count_entities('channel');
CREATE TRIGGER channels_counted_inserted AFTER INSERT ON channels
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_entities('channel');
CREATE TRIGGER channels_counted_updated AFTER UPDATE ON channels
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_entities('channel');
CREATE TRIGGER clients_counted_deleted AFTER DELETE ON clients
  REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION count_entities('client');
CREATE TRIGGER clients_counted_inserted AFTER INSERT ON clients
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_entities('client');
CREATE TRIGGER clients_counted_updated AFTER UPDATE ON clients
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_entities('client');
CREATE TRIGGER groups_counted_deleted AFTER DELETE ON groups
  REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION count_entities('group');
CREATE TRIGGER groups_counted_inserted AFTER INSERT ON groups
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_entities('group');
CREATE TRIGGER groups_counted_updated AFTER UPDATE ON groups
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_entities('group');

--
-- Messages: the log of batches and what it stores
--

CREATE TABLE ingest_batches (
  seq bigint GENERATED BY DEFAULT AS IDENTITY CONSTRAINT ingest_batches_pkey PRIMARY KEY,
  batch uuid NOT NULL CONSTRAINT ingest_batches_batch_key UNIQUE,
  xid xid8 NOT NULL DEFAULT position_xid(),
  arrived_at timestamptz NOT NULL DEFAULT now(),
  messages integer NOT NULL,
  records integer NOT NULL,
  min_time timestamptz,
  max_time timestamptz,
  projected boolean NOT NULL DEFAULT false,
  envelopes text,
  cleared_channels bigint[]
);
COMMENT ON TABLE ingest_batches IS 'One row per committed batch of messages: the log that every consumer of messages follows by position (xid, seq).';
COMMENT ON COLUMN ingest_batches.seq IS 'Second half of the position, and number of the batch.';
COMMENT ON COLUMN ingest_batches.batch IS 'Id chosen by the writer. After a COMMIT without an answer the writer looks the batch up by it, or repeats the batch under it.';
COMMENT ON COLUMN ingest_batches.xid IS 'First half of the position: the transaction of the batch.';
COMMENT ON COLUMN ingest_batches.arrived_at IS 'Arrival of everything in the batch. Partitions are ranges of it.';
COMMENT ON COLUMN ingest_batches.messages IS 'Number of messages.';
COMMENT ON COLUMN ingest_batches.records IS 'Number of records.';
COMMENT ON COLUMN ingest_batches.min_time IS 'Earliest time of a record; NULL: the batch holds payloads alone.';
COMMENT ON COLUMN ingest_batches.max_time IS 'Latest time of a record; NULL: the batch holds payloads alone.';
COMMENT ON COLUMN ingest_batches.projected IS 'Set in the transaction that adds the batch to the projections.';
COMMENT ON COLUMN ingest_batches.envelopes IS 'What MQTT publishers said about messages beside their content, by number of the message, as JSON; NULL: nothing.';
COMMENT ON COLUMN ingest_batches.cleared_channels IS 'Channels in which an empty message of the batch removed a retained message; it is stored in envelopes alone. NULL: none.';
CREATE INDEX ingest_batches_cleared ON ingest_batches (xid, seq) WHERE cleared_channels IS NOT NULL;
CREATE INDEX ingest_batches_position ON ingest_batches (xid, seq);
CREATE INDEX ingest_batches_pending ON ingest_batches (seq) WHERE NOT projected;

CREATE TABLE idempotency_keys (
  scope bytea CONSTRAINT idempotency_keys_pkey PRIMARY KEY,
  request_digest bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE idempotency_keys IS 'Publishes with an Idempotency-Key, written in the transaction of their message and kept for 24 hours.';
COMMENT ON COLUMN idempotency_keys.scope IS 'SHA-256 over caller, channel, subtopic and key.';
COMMENT ON COLUMN idempotency_keys.request_digest IS 'SHA-256 over content type and body: the same key with another body is refused.';
COMMENT ON COLUMN idempotency_keys.created_at IS 'When the message was published.';
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);

CREATE TABLE series (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT series_pkey PRIMARY KEY,
  domain_key bigint NOT NULL,
  channel_key bigint NOT NULL,
  publisher_key bigint,
  publisher_id text NOT NULL,
  subtopic text NOT NULL,
  name text NOT NULL,
  unit text NOT NULL,
  digest bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT series_channel_key_digest_key UNIQUE (channel_key, digest)
);
COMMENT ON TABLE series IS 'What records of one source have in common. No references to channels and clients: messages outlive both.';
COMMENT ON COLUMN series.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN series.domain_key IS 'Domain of the channel.';
COMMENT ON COLUMN series.channel_key IS 'Channel of the records.';
COMMENT ON COLUMN series.publisher_key IS 'Client that published them; NULL: a user or a task did.';
COMMENT ON COLUMN series.publisher_id IS 'Id of the publisher, as messages name it.';
COMMENT ON COLUMN series.subtopic IS 'Subtopic; empty: the channel itself.';
COMMENT ON COLUMN series.name IS 'SenML name.';
COMMENT ON COLUMN series.unit IS 'SenML unit; empty: none.';
COMMENT ON COLUMN series.digest IS 'First 16 bytes of the SHA-256 of the columns above: names may be longer than an index entry.';
COMMENT ON COLUMN series.created_at IS 'When the first record came.';
CREATE INDEX series_name ON series (channel_key, name);

CREATE TABLE series_counts (
  domain_key bigint,
  channel_key bigint,
  series integer NOT NULL DEFAULT 0,
  CONSTRAINT series_counts_pkey PRIMARY KEY (domain_key, channel_key)
);
COMMENT ON TABLE series_counts IS 'Number of series of each channel, and of each domain in the row with channel_key 0. Rows are locked in order while new series are made.';
COMMENT ON COLUMN series_counts.domain_key IS 'The domain.';
COMMENT ON COLUMN series_counts.channel_key IS 'The channel; 0: the whole domain.';
COMMENT ON COLUMN series_counts.series IS 'Number of series.';

CREATE TABLE records (
  channel_key bigint NOT NULL,
  min_time timestamptz NOT NULL,
  max_time timestamptz NOT NULL,
  arrived_at timestamptz NOT NULL DEFAULT now(),
  batch_seq bigint NOT NULL,
  message integer NOT NULL,
  chunk integer NOT NULL,
  retention_days smallint NOT NULL,
  protocol smallint NOT NULL,
  series_keys bigint[] NOT NULL,
  times timestamptz[] NOT NULL,
  "values" double precision[],
  sums double precision[],
  update_times double precision[],
  bool_values boolean[],
  string_values text[],
  data_values bytea[]
) PARTITION BY LIST (retention_days);
COMMENT ON TABLE records IS 'SenML records, stored in chunks: records of one message whose times lie in the same quarter of an hour (epoch divided by 900 s), at most 64, in the order in which they were sent. An element of each array is a record; an array that is NULL has no value in it. One row and one index entry for ten records cost a sixth of the work and a third of the space of ten rows.';
COMMENT ON COLUMN records.channel_key IS 'Channel of the message.';
COMMENT ON COLUMN records.min_time IS 'Earliest of times.';
COMMENT ON COLUMN records.max_time IS 'Latest of times.';
COMMENT ON COLUMN records.arrived_at IS 'When the message arrived, as in ingest_batches.';
COMMENT ON COLUMN records.batch_seq IS 'Batch of the message.';
COMMENT ON COLUMN records.message IS 'Number of the message in its batch, from 0.';
COMMENT ON COLUMN records.chunk IS 'Number of the chunk in its message, from 0.';
COMMENT ON COLUMN records.retention_days IS 'Retention class in days; 0: unlimited.';
COMMENT ON COLUMN records.protocol IS 'Protocol of the message: 1 http, 2 mqtt, 3 coap, 4 ws, 5 task.';
COMMENT ON COLUMN records.series_keys IS 'Series of each record, all of one publisher and subtopic.';
COMMENT ON COLUMN records.times IS 'Time of each record.';
COMMENT ON COLUMN records."values" IS 'Numeric values (SenML v).';
COMMENT ON COLUMN records.sums IS 'Sums (SenML s).';
COMMENT ON COLUMN records.update_times IS 'Update times in seconds (SenML ut).';
COMMENT ON COLUMN records.bool_values IS 'Boolean values (SenML vb).';
COMMENT ON COLUMN records.string_values IS 'String values (SenML vs).';
COMMENT ON COLUMN records.data_values IS 'Data values (SenML vd), decoded.';
CREATE TABLE records_r7 PARTITION OF records FOR VALUES IN (7) PARTITION BY RANGE (arrived_at);
CREATE TABLE records_r30 PARTITION OF records FOR VALUES IN (30) PARTITION BY RANGE (arrived_at);
CREATE TABLE records_r90 PARTITION OF records FOR VALUES IN (90) PARTITION BY RANGE (arrived_at);
CREATE TABLE records_r365 PARTITION OF records FOR VALUES IN (365) PARTITION BY RANGE (arrived_at);
CREATE TABLE records_r3650 PARTITION OF records FOR VALUES IN (3650) PARTITION BY RANGE (arrived_at);
CREATE TABLE records_r0 PARTITION OF records FOR VALUES IN (0) PARTITION BY RANGE (arrived_at);
-- Rows arrive in the order of their batches, so a block range index finds a batch at nearly no cost.
CREATE INDEX records_batch ON records USING brin (batch_seq) WITH (pages_per_range = 32, autosummarize = on);
-- Read for newest pages; the one of min_time is read for oldest pages. Both ascend, as times mostly do, so that page splits
-- leave full pages behind.
CREATE INDEX records_max_time ON records (channel_key, max_time);
CREATE INDEX records_min_time ON records (channel_key, min_time);

CREATE TABLE payloads (
  channel_key bigint NOT NULL,
  publisher_key bigint,
  time timestamptz NOT NULL,
  arrived_at timestamptz NOT NULL DEFAULT now(),
  batch_seq bigint NOT NULL,
  message integer NOT NULL,
  ordinal integer NOT NULL,
  retention_days smallint NOT NULL,
  protocol smallint NOT NULL,
  publisher_id text NOT NULL,
  subtopic text NOT NULL,
  format text NOT NULL,
  content_type text NOT NULL,
  document json,
  body bytea,
  CONSTRAINT payloads_kind_check CHECK ((document IS NULL) <> (body IS NULL))
) PARTITION BY LIST (retention_days);
COMMENT ON TABLE payloads IS 'Messages that are not SenML: JSON documents and raw bytes.';
COMMENT ON COLUMN payloads.channel_key IS 'Channel of the message.';
COMMENT ON COLUMN payloads.publisher_key IS 'Client that published it; NULL: a user or a task did.';
COMMENT ON COLUMN payloads.time IS 'Time of the message: its arrival.';
COMMENT ON COLUMN payloads.arrived_at IS 'When the message arrived, as in ingest_batches.';
COMMENT ON COLUMN payloads.batch_seq IS 'Batch of the message.';
COMMENT ON COLUMN payloads.message IS 'Number of the message in its batch, from 0.';
COMMENT ON COLUMN payloads.ordinal IS 'Number of the JSON object in its message, from 0.';
COMMENT ON COLUMN payloads.retention_days IS 'Retention class in days; 0: unlimited.';
COMMENT ON COLUMN payloads.protocol IS 'Protocol of the message, as in records.';
COMMENT ON COLUMN payloads.publisher_id IS 'Id of the publisher.';
COMMENT ON COLUMN payloads.subtopic IS 'Subtopic; empty: the channel itself.';
COMMENT ON COLUMN payloads.format IS 'Format that readers ask for: raw, or the last element of the subtopic of a JSON message.';
COMMENT ON COLUMN payloads.content_type IS 'Content type that the publisher gave.';
COMMENT ON COLUMN payloads.document IS 'JSON as it was sent (the type json keeps the text). Exactly one of document and body is set.';
COMMENT ON COLUMN payloads.body IS 'Bytes of a raw message.';
CREATE TABLE payloads_r7 PARTITION OF payloads FOR VALUES IN (7) PARTITION BY RANGE (arrived_at);
CREATE TABLE payloads_r30 PARTITION OF payloads FOR VALUES IN (30) PARTITION BY RANGE (arrived_at);
CREATE TABLE payloads_r90 PARTITION OF payloads FOR VALUES IN (90) PARTITION BY RANGE (arrived_at);
CREATE TABLE payloads_r365 PARTITION OF payloads FOR VALUES IN (365) PARTITION BY RANGE (arrived_at);
CREATE TABLE payloads_r3650 PARTITION OF payloads FOR VALUES IN (3650) PARTITION BY RANGE (arrived_at);
CREATE TABLE payloads_r0 PARTITION OF payloads FOR VALUES IN (0) PARTITION BY RANGE (arrived_at);
CREATE INDEX payloads_batch ON payloads USING brin (batch_seq) WITH (pages_per_range = 32, autosummarize = on);
CREATE INDEX payloads_time ON payloads (channel_key, format, "time");

--
-- Messages: projections
--

CREATE TABLE rollups (
  channel_key bigint,
  series_key bigint,
  bucket timestamptz,
  arrived_on timestamptz,
  retention_days smallint,
  protocol smallint NOT NULL,
  records bigint NOT NULL,
  value_count bigint NOT NULL,
  min_value double precision,
  max_value double precision,
  value_sum numeric,
  CONSTRAINT rollups_pkey PRIMARY KEY (channel_key, series_key, bucket, retention_days, arrived_on)
) PARTITION BY LIST (retention_days);
COMMENT ON TABLE rollups IS 'Sums over the records of a series in a quarter of an hour; series 0 is the whole channel and has counts alone. A projection: it holds the batches that are marked projected, and readers add the pending ones. Partitioned as records, so that retention drops both alike.';
COMMENT ON COLUMN rollups.channel_key IS 'The channel.';
COMMENT ON COLUMN rollups.series_key IS 'The series; 0: the whole channel.';
COMMENT ON COLUMN rollups.bucket IS 'Start of the quarter of an hour in which the times of the records lie.';
COMMENT ON COLUMN rollups.arrived_on IS 'Start of the partition of their arrival.';
COMMENT ON COLUMN rollups.retention_days IS 'Retention class in days; 0: unlimited.';
COMMENT ON COLUMN rollups.protocol IS 'Lowest protocol number among the records.';
COMMENT ON COLUMN rollups.records IS 'Number of records.';
COMMENT ON COLUMN rollups.value_count IS 'Number of records with a numeric value.';
COMMENT ON COLUMN rollups.min_value IS 'Smallest value.';
COMMENT ON COLUMN rollups.max_value IS 'Largest value.';
COMMENT ON COLUMN rollups.value_sum IS 'Sum of the values as their shortest decimals: exact, so that it does not depend on the order of batches.';
CREATE TABLE rollups_r7 PARTITION OF rollups FOR VALUES IN (7) PARTITION BY RANGE (arrived_on);
CREATE TABLE rollups_r30 PARTITION OF rollups FOR VALUES IN (30) PARTITION BY RANGE (arrived_on);
CREATE TABLE rollups_r90 PARTITION OF rollups FOR VALUES IN (90) PARTITION BY RANGE (arrived_on);
CREATE TABLE rollups_r365 PARTITION OF rollups FOR VALUES IN (365) PARTITION BY RANGE (arrived_on);
CREATE TABLE rollups_r3650 PARTITION OF rollups FOR VALUES IN (3650) PARTITION BY RANGE (arrived_on);
CREATE TABLE rollups_r0 PARTITION OF rollups FOR VALUES IN (0) PARTITION BY RANGE (arrived_on);

CREATE TABLE rollup_weeks (
  channel_key bigint,
  series_key bigint,
  retention_days smallint,
  arrived_on timestamptz,
  records bigint NOT NULL,
  first_bucket timestamptz NOT NULL,
  last_bucket timestamptz NOT NULL,
  CONSTRAINT rollup_weeks_pkey PRIMARY KEY (channel_key, series_key, retention_days, arrived_on)
) WITH (fillfactor = 50);
COMMENT ON TABLE rollup_weeks IS 'The rollups of a series added up by week of arrival; series 0 is the whole channel. Written by the statements that write rollups. Not partitioned: a read finds here which partitions it needs before it plans anything else, and totals without a range of times.';
COMMENT ON COLUMN rollup_weeks.channel_key IS 'The channel.';
COMMENT ON COLUMN rollup_weeks.series_key IS 'The series; 0: the whole channel.';
COMMENT ON COLUMN rollup_weeks.retention_days IS 'Retention class in days; 0: unlimited.';
COMMENT ON COLUMN rollup_weeks.arrived_on IS 'Start of the partition of their arrival.';
COMMENT ON COLUMN rollup_weeks.records IS 'Number of records.';
COMMENT ON COLUMN rollup_weeks.first_bucket IS 'No bucket of the week is earlier. Deletion leaves it as it is.';
COMMENT ON COLUMN rollup_weeks.last_bucket IS 'No bucket of the week is later.';
-- Retention removes the rows of partitions that it has dropped.
CREATE INDEX rollup_weeks_arrival ON rollup_weeks (retention_days, arrived_on);

CREATE TABLE latest_records (
  channel_key bigint,
  series_key bigint,
  time timestamptz NOT NULL,
  arrived_at timestamptz NOT NULL,
  batch_seq bigint NOT NULL,
  message integer NOT NULL,
  chunk integer NOT NULL,
  place bigint NOT NULL,
  retention_days smallint NOT NULL,
  protocol smallint NOT NULL,
  value double precision,
  sum double precision,
  update_time double precision,
  bool_value boolean,
  string_value text,
  data_value bytea,
  CONSTRAINT latest_records_pkey PRIMARY KEY (channel_key, series_key)
) WITH (fillfactor = 45);
COMMENT ON TABLE latest_records IS 'The newest record of each series. A projection, as rollups. Not partitioned: a newest record that retention drops is replaced before.';
COMMENT ON COLUMN latest_records.channel_key IS 'Channel of the series.';
COMMENT ON COLUMN latest_records.series_key IS 'The series.';
COMMENT ON COLUMN latest_records.time IS 'Time of the record.';
COMMENT ON COLUMN latest_records.arrived_at IS 'Arrival of the record; with the columns up to place it orders records of the same time.';
COMMENT ON COLUMN latest_records.batch_seq IS 'Batch of the record.';
COMMENT ON COLUMN latest_records.message IS 'Message in its batch.';
COMMENT ON COLUMN latest_records.chunk IS 'Chunk in its message, as in records.';
COMMENT ON COLUMN latest_records.place IS 'Place in its chunk, from 1.';
COMMENT ON COLUMN latest_records.retention_days IS 'Retention class in days; 0: unlimited.';
COMMENT ON COLUMN latest_records.protocol IS 'Protocol, as in records.';
COMMENT ON COLUMN latest_records.value IS 'Numeric value.';
COMMENT ON COLUMN latest_records.sum IS 'Sum.';
COMMENT ON COLUMN latest_records.update_time IS 'Update time in seconds.';
COMMENT ON COLUMN latest_records.bool_value IS 'Boolean value.';
COMMENT ON COLUMN latest_records.string_value IS 'String value.';
COMMENT ON COLUMN latest_records.data_value IS 'Data value.';

CREATE TABLE domain_usage (
  domain_key bigint CONSTRAINT domain_usage_domain_key_fkey REFERENCES domains (key) ON DELETE CASCADE,
  day date,
  messages bigint NOT NULL,
  records bigint NOT NULL,
  CONSTRAINT domain_usage_pkey PRIMARY KEY (domain_key, day)
);
COMMENT ON TABLE domain_usage IS 'Messages and records that arrived, per day. Deleted messages stay counted.';
COMMENT ON COLUMN domain_usage.domain_key IS 'The domain.';
COMMENT ON COLUMN domain_usage.day IS 'Day in UTC.';
COMMENT ON COLUMN domain_usage.messages IS 'Number of messages.';
COMMENT ON COLUMN domain_usage.records IS 'Number of SenML records, JSON objects and raw payloads.';

CREATE TABLE domain_minutes (
  domain_key bigint CONSTRAINT domain_minutes_domain_key_fkey REFERENCES domains (key) ON DELETE CASCADE,
  minute timestamptz,
  messages bigint NOT NULL,
  records bigint NOT NULL,
  CONSTRAINT domain_minutes_pkey PRIMARY KEY (domain_key, minute)
);
COMMENT ON TABLE domain_minutes IS 'Messages and records that arrived, per minute, kept for a little more than a day: what rates are computed from.';
COMMENT ON COLUMN domain_minutes.domain_key IS 'The domain.';
COMMENT ON COLUMN domain_minutes.minute IS 'Start of the minute.';
COMMENT ON COLUMN domain_minutes.messages IS 'Number of messages.';
COMMENT ON COLUMN domain_minutes.records IS 'Number of SenML records, JSON objects and raw payloads.';
CREATE INDEX domain_minutes_age ON domain_minutes (minute);

CREATE TABLE domain_stored_records (
  domain_key bigint CONSTRAINT domain_stored_records_domain_key_fkey REFERENCES domains (key) ON DELETE CASCADE,
  retention_days smallint,
  arrived_on timestamptz,
  records bigint NOT NULL,
  CONSTRAINT domain_stored_records_pkey PRIMARY KEY (domain_key, retention_days, arrived_on)
);
COMMENT ON TABLE domain_stored_records IS 'Records that are stored, per domain and week of arrival. A projection, as rollups: deletion subtracts, and retention removes the rows of partitions that it has dropped.';
COMMENT ON COLUMN domain_stored_records.domain_key IS 'The domain.';
COMMENT ON COLUMN domain_stored_records.retention_days IS 'Retention class in days; 0: unlimited.';
COMMENT ON COLUMN domain_stored_records.arrived_on IS 'Start of the partition of their arrival.';
COMMENT ON COLUMN domain_stored_records.records IS 'Number of SenML records, JSON objects and raw payloads.';
CREATE INDEX domain_stored_records_arrival ON domain_stored_records (retention_days, arrived_on);

CREATE TABLE client_telemetry (
  client_key bigint
    CONSTRAINT client_telemetry_pkey PRIMARY KEY
    CONSTRAINT client_telemetry_client_key_fkey REFERENCES clients (key) ON DELETE CASCADE,
  first_seen timestamptz NOT NULL,
  last_seen timestamptz NOT NULL,
  inbound_messages bigint NOT NULL,
  outbound_messages bigint NOT NULL DEFAULT 0,
  is_online boolean NOT NULL DEFAULT false,
  state_since timestamptz,
  unparsed_messages bigint NOT NULL DEFAULT 0,
  last_error text,
  last_error_at timestamptz
);
COMMENT ON TABLE client_telemetry IS 'Activity of each client.';
COMMENT ON COLUMN client_telemetry.client_key IS 'The client.';
COMMENT ON COLUMN client_telemetry.first_seen IS 'When it first published or opened a session.';
COMMENT ON COLUMN client_telemetry.last_seen IS 'When it last published, or opened or closed a session.';
COMMENT ON COLUMN client_telemetry.inbound_messages IS 'Number of messages that it published.';
COMMENT ON COLUMN client_telemetry.outbound_messages IS 'Number of messages that were delivered to its sessions.';
COMMENT ON COLUMN client_telemetry.is_online IS 'Whether it has an open session.';
COMMENT ON COLUMN client_telemetry.state_since IS 'Since when it is online or offline; NULL: it never had a session.';
COMMENT ON COLUMN client_telemetry.unparsed_messages IS 'Number of messages that look like JSON or SenML and were stored as something else.';
COMMENT ON COLUMN client_telemetry.last_error IS 'Error of the last invalid message; NULL: none was received.';
COMMENT ON COLUMN client_telemetry.last_error_at IS 'When that one was received.';
-- Clients that are online.
CREATE INDEX client_telemetry_online ON client_telemetry (client_key) WHERE is_online;

--
-- Messages: partitions
--

-- Makes the partitions that arrivals from `from_time` to `until_time` need: a table for each week, Monday to Monday in UTC. One for a
-- month would reach the 32 TB that a table can have, at 331,000 records a second. Call it under the maintenance lock. A new table is
-- attached, not created as a partition, because ATTACH lets writers continue. Rows of rollups are updated every few seconds: half of
-- each page stays free, so that an update stays on its page. Returns how many partitions were made.
CREATE FUNCTION create_message_partitions(from_time timestamptz, until_time timestamptz) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  parent text;
  days integer;
  week timestamptz;
  partition text;
  made integer := 0;
BEGIN
  FOREACH parent IN ARRAY ARRAY['records', 'payloads', 'rollups'] LOOP
    FOREACH days IN ARRAY ARRAY[7, 30, 90, 365, 3650, 0] LOOP
      week := date_trunc('week', from_time, 'UTC');
      WHILE week <= until_time LOOP
        partition := format('%s_r%s_%s', parent, days, to_char(week AT TIME ZONE 'UTC', 'YYYYMMDD'));
        IF to_regclass(partition) IS NULL THEN
          EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS) WITH (fillfactor = %s)', partition, parent,
            CASE parent WHEN 'rollups' THEN 50 ELSE 100 END);
          EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent || '_r' || days, partition,
            week, week + interval '168 hours');
          made := made + 1;
        END IF;
        week := week + interval '168 hours';
      END LOOP;
    END LOOP;
  END LOOP;
  RETURN made;
END $$;

--
-- Messages: presence and MQTT sessions
--

CREATE TABLE presence_nodes (
  node text CONSTRAINT presence_nodes_pkey PRIMARY KEY,
  seen_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE presence_nodes IS 'Processes that hold sessions of clients. When one has not been seen for a while, another one removes its rows.';
COMMENT ON COLUMN presence_nodes.node IS 'Name of the process.';
COMMENT ON COLUMN presence_nodes.seen_at IS 'When it last reported that it is alive.';

CREATE TABLE client_presence (
  client_key bigint CONSTRAINT client_presence_client_key_fkey REFERENCES clients (key) ON DELETE CASCADE,
  node text CONSTRAINT client_presence_node_fkey REFERENCES presence_nodes (node) ON DELETE CASCADE,
  protocol smallint,
  sessions integer NOT NULL,
  subscriptions integer NOT NULL,
  CONSTRAINT client_presence_pkey PRIMARY KEY (client_key, node, protocol)
);
COMMENT ON TABLE client_presence IS 'Open sessions by client, process and protocol.';
COMMENT ON COLUMN client_presence.client_key IS 'The client.';
COMMENT ON COLUMN client_presence.node IS 'The process that holds the sessions.';
COMMENT ON COLUMN client_presence.protocol IS 'Protocol, as in records.';
COMMENT ON COLUMN client_presence.sessions IS 'Number of sessions.';
COMMENT ON COLUMN client_presence.subscriptions IS 'Number of their subscriptions.';
CREATE INDEX client_presence_node ON client_presence (node);

CREATE TABLE mqtt_nodes (
  node text CONSTRAINT mqtt_nodes_pkey PRIMARY KEY,
  seen_at timestamptz NOT NULL DEFAULT now(),
  position text
);
COMMENT ON TABLE mqtt_nodes IS 'Processes that hold MQTT sessions.';
COMMENT ON COLUMN mqtt_nodes.node IS 'Name of the process.';
COMMENT ON COLUMN mqtt_nodes.seen_at IS 'When it last reported that it is alive.';
COMMENT ON COLUMN mqtt_nodes.position IS 'Position up to which it has delivered the log of messages to subscriptions without a position of their own.';

CREATE TABLE mqtt_sessions (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT mqtt_sessions_pkey PRIMARY KEY,
  client_key bigint NOT NULL CONSTRAINT mqtt_sessions_client_key_fkey REFERENCES clients (key) ON DELETE CASCADE,
  client_identifier text NOT NULL,
  epoch bigint NOT NULL DEFAULT 1,
  node text NOT NULL,
  is_connected boolean NOT NULL DEFAULT true,
  version smallint NOT NULL,
  address text NOT NULL,
  expiry_seconds bigint NOT NULL,
  connected_at timestamptz NOT NULL DEFAULT now(),
  disconnected_at timestamptz,
  ends_at timestamptz,
  will jsonb,
  will_payload bytea,
  will_due_at timestamptz,
  skipped_messages bigint NOT NULL DEFAULT 0,
  CONSTRAINT mqtt_sessions_client_identifier_key UNIQUE (client_key, client_identifier)
);
COMMENT ON TABLE mqtt_sessions IS 'MQTT sessions, connected or stored.';
COMMENT ON COLUMN mqtt_sessions.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN mqtt_sessions.client_key IS 'The client.';
COMMENT ON COLUMN mqtt_sessions.client_identifier IS 'MQTT client identifier.';
COMMENT ON COLUMN mqtt_sessions.epoch IS 'Raised with each connection; a process that holds an older epoch may no longer write.';
COMMENT ON COLUMN mqtt_sessions.node IS 'Process that has the connection, or had the last one.';
COMMENT ON COLUMN mqtt_sessions.is_connected IS 'Whether the session has a connection.';
COMMENT ON COLUMN mqtt_sessions.version IS 'MQTT protocol level: 3 (MQTT 3.1), 4 (3.1.1) or 5.';
COMMENT ON COLUMN mqtt_sessions.address IS 'Network address of the client.';
COMMENT ON COLUMN mqtt_sessions.expiry_seconds IS 'Session expiry interval in seconds; 0: the session ends with its connection.';
COMMENT ON COLUMN mqtt_sessions.connected_at IS 'When it last connected.';
COMMENT ON COLUMN mqtt_sessions.disconnected_at IS 'When it last disconnected.';
COMMENT ON COLUMN mqtt_sessions.ends_at IS 'When the session expires; NULL: it is connected, or never expires.';
COMMENT ON COLUMN mqtt_sessions.will IS 'Will message without its payload; NULL: none.';
COMMENT ON COLUMN mqtt_sessions.will_payload IS 'Payload of the will message.';
COMMENT ON COLUMN mqtt_sessions.will_due_at IS 'When the will message is to be published; NULL: not yet known.';
COMMENT ON COLUMN mqtt_sessions.skipped_messages IS 'Messages that were not queued while the client was away because there were too many.';
CREATE INDEX mqtt_sessions_end ON mqtt_sessions (ends_at) WHERE ends_at IS NOT NULL;
CREATE INDEX mqtt_sessions_node ON mqtt_sessions (node) WHERE is_connected;
CREATE INDEX mqtt_sessions_will ON mqtt_sessions (will_due_at) WHERE will_due_at IS NOT NULL;

CREATE TABLE mqtt_share_groups (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT mqtt_share_groups_pkey PRIMARY KEY,
  channel_key bigint NOT NULL CONSTRAINT mqtt_share_groups_channel_key_fkey REFERENCES channels (key) ON DELETE CASCADE,
  name text NOT NULL,
  filter text NOT NULL,
  node text,
  epoch bigint NOT NULL DEFAULT 1,
  position text,
  CONSTRAINT mqtt_share_groups_name_key UNIQUE (channel_key, name, filter)
);
COMMENT ON TABLE mqtt_share_groups IS 'Shared subscriptions ($share): one reader of the log of messages over all processes.';
COMMENT ON COLUMN mqtt_share_groups.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN mqtt_share_groups.channel_key IS 'The channel.';
COMMENT ON COLUMN mqtt_share_groups.name IS 'Share name.';
COMMENT ON COLUMN mqtt_share_groups.filter IS 'Canonical filter of subtopics.';
COMMENT ON COLUMN mqtt_share_groups.node IS 'Process that reads for the members; NULL: none.';
COMMENT ON COLUMN mqtt_share_groups.epoch IS 'Raised with each process that begins to read; a process that holds an older epoch may no longer write.';
COMMENT ON COLUMN mqtt_share_groups.position IS 'Position in the log of messages; NULL: that of its process.';
CREATE INDEX mqtt_share_groups_node ON mqtt_share_groups (node) WHERE node IS NOT NULL;

CREATE TABLE mqtt_share_group_deliveries (
  share_group_key bigint CONSTRAINT mqtt_share_group_deliveries_share_group_key_fkey REFERENCES mqtt_share_groups (key) ON DELETE CASCADE,
  batch_seq bigint,
  message integer,
  CONSTRAINT mqtt_share_group_deliveries_pkey PRIMARY KEY (share_group_key, batch_seq, message)
);
COMMENT ON TABLE mqtt_share_group_deliveries IS 'Messages beyond the position of a shared subscription that are not delivered again: they were acknowledged, or sent with QoS 2.';
COMMENT ON COLUMN mqtt_share_group_deliveries.share_group_key IS 'The shared subscription.';
COMMENT ON COLUMN mqtt_share_group_deliveries.batch_seq IS 'Batch of the message.';
COMMENT ON COLUMN mqtt_share_group_deliveries.message IS 'Message in its batch.';

CREATE TABLE mqtt_subscriptions (
  session_key bigint CONSTRAINT mqtt_subscriptions_session_key_fkey REFERENCES mqtt_sessions (key) ON DELETE CASCADE,
  filter text,
  client_key bigint NOT NULL,
  channel_key bigint NOT NULL,
  options smallint NOT NULL,
  identifier integer,
  position text,
  share_group_key bigint CONSTRAINT mqtt_subscriptions_share_group_key_fkey REFERENCES mqtt_share_groups (key),
  CONSTRAINT mqtt_subscriptions_pkey PRIMARY KEY (session_key, filter),
  CONSTRAINT mqtt_subscriptions_connection_fkey FOREIGN KEY (client_key, channel_key)
    REFERENCES connections (client_key, channel_key) ON DELETE CASCADE
);
COMMENT ON TABLE mqtt_subscriptions IS 'Subscriptions of MQTT sessions.';
COMMENT ON COLUMN mqtt_subscriptions.session_key IS 'The session.';
COMMENT ON COLUMN mqtt_subscriptions.filter IS 'Topic filter as the client wrote it.';
COMMENT ON COLUMN mqtt_subscriptions.client_key IS 'Client of the session.';
COMMENT ON COLUMN mqtt_subscriptions.channel_key IS 'Channel of the filter. A client that is disconnected from the channel loses the subscription.';
COMMENT ON COLUMN mqtt_subscriptions.options IS 'Options byte of SUBSCRIBE (MQTT 5.0 section 3.8.3.1).';
COMMENT ON COLUMN mqtt_subscriptions.identifier IS 'Subscription identifier; NULL: none.';
COMMENT ON COLUMN mqtt_subscriptions.position IS 'Position in the log of messages; NULL: that of the process of the session.';
COMMENT ON COLUMN mqtt_subscriptions.share_group_key IS 'Shared subscription that it belongs to, which exists as long as it has members; NULL: none.';
CREATE INDEX mqtt_subscriptions_connection ON mqtt_subscriptions (client_key, channel_key);
CREATE INDEX mqtt_subscriptions_share_group ON mqtt_subscriptions (share_group_key) WHERE share_group_key IS NOT NULL;

CREATE TABLE mqtt_received (
  session_key bigint CONSTRAINT mqtt_received_session_key_fkey REFERENCES mqtt_sessions (key) ON DELETE CASCADE,
  packet_id integer,
  CONSTRAINT mqtt_received_pkey PRIMARY KEY (session_key, packet_id)
);
COMMENT ON TABLE mqtt_received IS 'Packet identifiers of QoS 2 messages that were stored and not yet released by their sender.';
COMMENT ON COLUMN mqtt_received.session_key IS 'The session.';
COMMENT ON COLUMN mqtt_received.packet_id IS 'Packet identifier.';

CREATE TABLE mqtt_outbound (
  session_key bigint CONSTRAINT mqtt_outbound_session_key_fkey REFERENCES mqtt_sessions (key) ON DELETE CASCADE,
  ordinal bigint,
  packet_id integer NOT NULL,
  qos smallint NOT NULL,
  state smallint NOT NULL,
  batch_seq bigint,
  message integer,
  channel_key bigint NOT NULL,
  subtopic text NOT NULL,
  properties jsonb NOT NULL,
  payload bytea NOT NULL,
  CONSTRAINT mqtt_outbound_pkey PRIMARY KEY (session_key, ordinal)
);
COMMENT ON TABLE mqtt_outbound IS 'Messages queued for a session: with QoS 2 from before they are sent, others while there is no connection.';
COMMENT ON COLUMN mqtt_outbound.session_key IS 'The session.';
COMMENT ON COLUMN mqtt_outbound.ordinal IS 'Order within the session.';
COMMENT ON COLUMN mqtt_outbound.packet_id IS 'Packet identifier; 0: not sent.';
COMMENT ON COLUMN mqtt_outbound.qos IS 'QoS of the delivery.';
COMMENT ON COLUMN mqtt_outbound.state IS '0 waiting, 1 sent, 2 released, 3 done: kept until the position of the subscription has passed it.';
COMMENT ON COLUMN mqtt_outbound.batch_seq IS 'Batch of the message; NULL: it was a retained message.';
COMMENT ON COLUMN mqtt_outbound.message IS 'Message in its batch.';
COMMENT ON COLUMN mqtt_outbound.channel_key IS 'Channel of the message.';
COMMENT ON COLUMN mqtt_outbound.subtopic IS 'Subtopic of the message.';
COMMENT ON COLUMN mqtt_outbound.properties IS 'MQTT properties and flags of the message, as JSON.';
COMMENT ON COLUMN mqtt_outbound.payload IS 'Content.';

CREATE TABLE mqtt_takeovers (
  node text,
  session_key bigint,
  epoch bigint,
  CONSTRAINT mqtt_takeovers_pkey PRIMARY KEY (node, session_key, epoch)
);
COMMENT ON TABLE mqtt_takeovers IS 'Sessions that another process took over: the process that had the connection closes it.';
COMMENT ON COLUMN mqtt_takeovers.node IS 'Process that had the connection.';
COMMENT ON COLUMN mqtt_takeovers.session_key IS 'The session.';
COMMENT ON COLUMN mqtt_takeovers.epoch IS 'Epoch of the connection to close.';

CREATE TABLE mqtt_retained (
  channel_key bigint CONSTRAINT mqtt_retained_channel_key_fkey REFERENCES channels (key) ON DELETE CASCADE,
  subtopic text,
  publisher_id text NOT NULL,
  qos smallint NOT NULL,
  envelope text,
  payload bytea NOT NULL,
  stored_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz,
  CONSTRAINT mqtt_retained_pkey PRIMARY KEY (channel_key, subtopic)
);
COMMENT ON TABLE mqtt_retained IS 'Retained messages (MQTT 5.0 section 3.3.1.3): the last one of each topic.';
COMMENT ON COLUMN mqtt_retained.channel_key IS 'The channel.';
COMMENT ON COLUMN mqtt_retained.subtopic IS 'The subtopic; empty: the channel itself.';
COMMENT ON COLUMN mqtt_retained.publisher_id IS 'Id of the publisher.';
COMMENT ON COLUMN mqtt_retained.qos IS 'QoS that it was published with.';
COMMENT ON COLUMN mqtt_retained.envelope IS 'Properties that the publisher sent with the message; NULL: none.';
COMMENT ON COLUMN mqtt_retained.payload IS 'Content.';
COMMENT ON COLUMN mqtt_retained.stored_at IS 'When it was published.';
COMMENT ON COLUMN mqtt_retained.expires_at IS 'When it expires; NULL: never.';
CREATE INDEX mqtt_retained_expiry ON mqtt_retained (expires_at) WHERE expires_at IS NOT NULL;

--
-- Provisioning: certificates, notifications and bootstrap
--

CREATE TABLE certificates (
  serial text CONSTRAINT certificates_pkey PRIMARY KEY,
  fingerprint bytea NOT NULL CONSTRAINT certificates_fingerprint_key UNIQUE,
  authority text NOT NULL,
  domain_key bigint NOT NULL,
  client_key bigint NOT NULL,
  client_id uuid NOT NULL,
  pem text NOT NULL,
  not_before timestamptz NOT NULL,
  not_after timestamptz NOT NULL,
  created_by uuid,
  created_at timestamptz NOT NULL DEFAULT now(),
  revoked_at timestamptz
);
COMMENT ON TABLE certificates IS 'Certificates of clients. No reference to the client: a revoked certificate stays on the revocation list until it expires, which may be after its client was removed.';
COMMENT ON COLUMN certificates.serial IS 'Serial number in lower-case hex.';
COMMENT ON COLUMN certificates.fingerprint IS 'SHA-256 of the certificate: a handshake finds its client by it.';
COMMENT ON COLUMN certificates.authority IS 'Key identifier of the authority that signed it.';
COMMENT ON COLUMN certificates.domain_key IS 'Domain of the client.';
COMMENT ON COLUMN certificates.client_key IS 'The client.';
COMMENT ON COLUMN certificates.client_id IS 'Id of the client.';
COMMENT ON COLUMN certificates.pem IS 'The certificate in PEM.';
COMMENT ON COLUMN certificates.not_before IS 'Start of its validity.';
COMMENT ON COLUMN certificates.not_after IS 'End of its validity.';
COMMENT ON COLUMN certificates.created_by IS 'Id of the user who requested it; NULL: the client did.';
COMMENT ON COLUMN certificates.created_at IS 'When it was issued.';
COMMENT ON COLUMN certificates.revoked_at IS 'When it was revoked; NULL: it was not.';
CREATE INDEX certificates_client ON certificates (client_key, created_at DESC, serial);
CREATE INDEX certificates_domain ON certificates (domain_key, created_at DESC, serial);
CREATE INDEX certificates_expiry ON certificates (not_after);
CREATE INDEX certificates_revoked ON certificates (authority, not_after) WHERE revoked_at IS NOT NULL;

-- A trigger, because clients are also removed by cascades: their certificates are revoked in the same moment.
CREATE FUNCTION revoke_certificates_of_clients() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE certificates SET revoked_at = now()
   WHERE revoked_at IS NULL AND client_key IN (SELECT key FROM old_rows);
  RETURN NULL;
END
$$;

CREATE TRIGGER clients_certificates_revoked AFTER DELETE ON clients
  REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION revoke_certificates_of_clients();

CREATE TABLE notification_subscriptions (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT notification_subscriptions_pkey PRIMARY KEY,
  id uuid NOT NULL CONSTRAINT notification_subscriptions_id_key UNIQUE,
  user_key bigint NOT NULL CONSTRAINT notification_subscriptions_user_fkey REFERENCES users (key) ON DELETE CASCADE,
  channel_key bigint NOT NULL CONSTRAINT notification_subscriptions_channel_fkey REFERENCES channels (key) ON DELETE CASCADE,
  topic text NOT NULL,
  filter text NOT NULL,
  contact text NOT NULL,
  missed bigint NOT NULL DEFAULT 0,
  created_at timestamptz NOT NULL DEFAULT now(),
  confirmed_at timestamptz,
  confirmation_sent_at timestamptz,
  CONSTRAINT notification_subscriptions_contact_key UNIQUE (user_key, topic, contact)
);
COMMENT ON TABLE notification_subscriptions IS 'Subscriptions of users to messages of a channel, delivered by mail or to an HTTPS URL.';
COMMENT ON COLUMN notification_subscriptions.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN notification_subscriptions.id IS 'Id that users see.';
COMMENT ON COLUMN notification_subscriptions.user_key IS 'The subscriber.';
COMMENT ON COLUMN notification_subscriptions.channel_key IS 'The channel.';
COMMENT ON COLUMN notification_subscriptions.topic IS 'Topic as the user gave it.';
COMMENT ON COLUMN notification_subscriptions.filter IS 'Its subtopic filter in the canonical form; empty: the channel itself.';
COMMENT ON COLUMN notification_subscriptions.contact IS 'Mail address or HTTPS URL.';
COMMENT ON COLUMN notification_subscriptions.missed IS 'Messages that were dropped because too many were waiting.';
COMMENT ON COLUMN notification_subscriptions.created_at IS 'When it was created.';
COMMENT ON COLUMN notification_subscriptions.confirmed_at IS 'When the owner of the mail address agreed; NULL: not yet, and nothing is sent. Without meaning for an HTTPS contact.';
COMMENT ON COLUMN notification_subscriptions.confirmation_sent_at IS 'When the confirmation link was last sent; NULL: never.';
CREATE INDEX notification_subscriptions_channel ON notification_subscriptions (channel_key);

CREATE TABLE notification_deliveries (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT notification_deliveries_pkey PRIMARY KEY,
  subscription_key bigint NOT NULL
    CONSTRAINT notification_deliveries_subscription_fkey REFERENCES notification_subscriptions (key) ON DELETE CASCADE,
  payload jsonb NOT NULL,
  attempts integer NOT NULL DEFAULT 0,
  next_attempt_at timestamptz DEFAULT now(),
  last_error text,
  created_at timestamptz NOT NULL DEFAULT now(),
  user_key bigint
);
COMMENT ON TABLE notification_deliveries IS 'Deliveries that are due, and those that were given up.';
COMMENT ON COLUMN notification_deliveries.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN notification_deliveries.subscription_key IS 'The subscription.';
COMMENT ON COLUMN notification_deliveries.payload IS 'The message as it is sent.';
COMMENT ON COLUMN notification_deliveries.attempts IS 'Number of attempts.';
COMMENT ON COLUMN notification_deliveries.next_attempt_at IS 'When the next attempt is due; NULL: the delivery was given up.';
COMMENT ON COLUMN notification_deliveries.last_error IS 'Why the last attempt failed; NULL: it did not.';
COMMENT ON COLUMN notification_deliveries.created_at IS 'When the message came.';
COMMENT ON COLUMN notification_deliveries.user_key IS 'Owner of the subscription: deliveries are claimed by owner, so that none waits for another.';
CREATE INDEX notification_deliveries_due ON notification_deliveries (next_attempt_at) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX notification_deliveries_owner
  ON notification_deliveries (user_key, next_attempt_at, key) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX notification_deliveries_subscription ON notification_deliveries (subscription_key, key);

-- Fills in the owner of the subscription.
CREATE FUNCTION set_notification_delivery_owner() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  SELECT n.user_key INTO NEW.user_key FROM notification_subscriptions n WHERE n.key = NEW.subscription_key;
  RETURN NEW;
END
$$;

CREATE TRIGGER notification_deliveries_owner_set BEFORE INSERT ON notification_deliveries
  FOR EACH ROW WHEN (NEW.user_key IS NULL) EXECUTE FUNCTION set_notification_delivery_owner();

CREATE TABLE bootstrap_profiles (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT bootstrap_profiles_pkey PRIMARY KEY,
  id uuid NOT NULL CONSTRAINT bootstrap_profiles_id_key UNIQUE,
  domain_key bigint NOT NULL CONSTRAINT bootstrap_profiles_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  name text NOT NULL,
  description text NOT NULL DEFAULT '',
  content_format text NOT NULL
    CONSTRAINT bootstrap_profiles_format_check CHECK (content_format IN ('go-template', 'raw', 'json', 'yaml', 'toml')),
  content_type text NOT NULL,
  content_template text NOT NULL DEFAULT '',
  defaults jsonb NOT NULL DEFAULT '{}',
  binding_slots jsonb NOT NULL DEFAULT '[]',
  version integer NOT NULL DEFAULT 1,
  created_by uuid,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_by uuid,
  updated_at timestamptz
);
COMMENT ON TABLE bootstrap_profiles IS 'Templates of device configurations. They hold no secrets.';
COMMENT ON COLUMN bootstrap_profiles.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN bootstrap_profiles.id IS 'Id that users see.';
COMMENT ON COLUMN bootstrap_profiles.domain_key IS 'The domain.';
COMMENT ON COLUMN bootstrap_profiles.name IS 'Name of the profile.';
COMMENT ON COLUMN bootstrap_profiles.description IS 'Description of the profile.';
COMMENT ON COLUMN bootstrap_profiles.content_format IS 'Format of the template: go-template, raw, json, yaml or toml.';
COMMENT ON COLUMN bootstrap_profiles.content_type IS 'Content type of the rendered configuration.';
COMMENT ON COLUMN bootstrap_profiles.content_template IS 'The template.';
COMMENT ON COLUMN bootstrap_profiles.defaults IS 'Default values of its variables.';
COMMENT ON COLUMN bootstrap_profiles.binding_slots IS 'Slots for clients and channels that a configuration fills.';
COMMENT ON COLUMN bootstrap_profiles.version IS 'Raised by each update.';
COMMENT ON COLUMN bootstrap_profiles.created_by IS 'Id of the user who created it.';
COMMENT ON COLUMN bootstrap_profiles.created_at IS 'When it was created.';
COMMENT ON COLUMN bootstrap_profiles.updated_by IS 'Id of the user who last changed it; NULL: it was never changed.';
COMMENT ON COLUMN bootstrap_profiles.updated_at IS 'When it was last changed; NULL: never.';
CREATE INDEX bootstrap_profiles_page ON bootstrap_profiles (domain_key, created_at, key);

CREATE TABLE bootstrap_configs (
  client_key bigint
    CONSTRAINT bootstrap_configs_pkey PRIMARY KEY
    CONSTRAINT bootstrap_configs_client_fkey REFERENCES clients (key) ON DELETE CASCADE,
  domain_key bigint NOT NULL CONSTRAINT bootstrap_configs_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  external_id text NOT NULL,
  external_key_mac bytea NOT NULL,
  external_key_sealed bytea NOT NULL,
  name text NOT NULL DEFAULT '',
  content text NOT NULL DEFAULT '',
  client_cert text NOT NULL DEFAULT '',
  client_private_key_sealed bytea,
  ca_cert text NOT NULL DEFAULT '',
  is_enabled boolean NOT NULL DEFAULT false,
  created_by uuid,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_by uuid,
  updated_at timestamptz,
  profile_key bigint CONSTRAINT bootstrap_configs_profile_fkey REFERENCES bootstrap_profiles (key) ON DELETE SET NULL,
  render_context_sealed bytea,
  CONSTRAINT bootstrap_configs_external_id_key UNIQUE (domain_key, external_id),
  CONSTRAINT bootstrap_configs_external_key_key UNIQUE (external_id, external_key_mac)
);
COMMENT ON TABLE bootstrap_configs IS 'Configurations that devices fetch with an external id and key.';
COMMENT ON COLUMN bootstrap_configs.client_key IS 'Client that the configuration belongs to.';
COMMENT ON COLUMN bootstrap_configs.domain_key IS 'Domain of the client.';
COMMENT ON COLUMN bootstrap_configs.external_id IS 'Id that the device was made with.';
COMMENT ON COLUMN bootstrap_configs.external_key_mac IS 'Keyed digest of the external key, for the lookup.';
COMMENT ON COLUMN bootstrap_configs.external_key_sealed IS 'The external key itself, encrypted, for users who may update the client.';
COMMENT ON COLUMN bootstrap_configs.name IS 'Name of the configuration.';
COMMENT ON COLUMN bootstrap_configs.content IS 'Content that the device receives.';
COMMENT ON COLUMN bootstrap_configs.client_cert IS 'Certificate of the client in PEM; empty: none.';
COMMENT ON COLUMN bootstrap_configs.client_private_key_sealed IS 'Private key of the client, encrypted; NULL: none.';
COMMENT ON COLUMN bootstrap_configs.ca_cert IS 'Certificate of the authority in PEM; empty: none.';
COMMENT ON COLUMN bootstrap_configs.is_enabled IS 'Whether the configuration is to be active. It is active while all its channels are connected in both directions.';
COMMENT ON COLUMN bootstrap_configs.created_by IS 'Id of the user who created it.';
COMMENT ON COLUMN bootstrap_configs.created_at IS 'When it was created.';
COMMENT ON COLUMN bootstrap_configs.updated_by IS 'Id of the user who last changed it; NULL: it was never changed.';
COMMENT ON COLUMN bootstrap_configs.updated_at IS 'When it was last changed; NULL: never.';
COMMENT ON COLUMN bootstrap_configs.profile_key IS 'Profile that renders the content; NULL: none. A profile in use cannot be deleted; SET NULL applies when its domain is removed.';
COMMENT ON COLUMN bootstrap_configs.render_context_sealed IS 'Variables of this device as encrypted JSON; NULL: none.';
CREATE INDEX bootstrap_configs_page ON bootstrap_configs (domain_key, created_at, client_key);
CREATE INDEX bootstrap_configs_profile ON bootstrap_configs (profile_key) WHERE profile_key IS NOT NULL;

CREATE TABLE bootstrap_channels (
  client_key bigint CONSTRAINT bootstrap_channels_config_fkey REFERENCES bootstrap_configs (client_key) ON DELETE CASCADE,
  channel_key bigint CONSTRAINT bootstrap_channels_channel_fkey REFERENCES channels (key) ON DELETE CASCADE,
  ordinal integer NOT NULL,
  CONSTRAINT bootstrap_channels_pkey PRIMARY KEY (client_key, channel_key)
);
COMMENT ON TABLE bootstrap_channels IS 'Channels of a configuration.';
COMMENT ON COLUMN bootstrap_channels.client_key IS 'The configuration.';
COMMENT ON COLUMN bootstrap_channels.channel_key IS 'The channel.';
COMMENT ON COLUMN bootstrap_channels.ordinal IS 'Order in which the channels were named.';
CREATE INDEX bootstrap_channels_channel ON bootstrap_channels (channel_key);

CREATE TABLE bootstrap_bindings (
  config_key bigint CONSTRAINT bootstrap_bindings_config_fkey REFERENCES bootstrap_configs (client_key) ON DELETE CASCADE,
  slot text,
  client_key bigint CONSTRAINT bootstrap_bindings_client_fkey REFERENCES clients (key) ON DELETE CASCADE,
  channel_key bigint CONSTRAINT bootstrap_bindings_channel_fkey REFERENCES channels (key) ON DELETE CASCADE,
  updated_by uuid,
  updated_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT bootstrap_bindings_pkey PRIMARY KEY (config_key, slot),
  CONSTRAINT bootstrap_bindings_one_check CHECK (num_nonnulls(client_key, channel_key) = 1)
);
COMMENT ON TABLE bootstrap_bindings IS 'What a configuration fills the slots of its profile with.';
COMMENT ON COLUMN bootstrap_bindings.config_key IS 'The configuration.';
COMMENT ON COLUMN bootstrap_bindings.slot IS 'Name of the slot.';
COMMENT ON COLUMN bootstrap_bindings.client_key IS 'Client in the slot. Exactly one of client_key and channel_key is set.';
COMMENT ON COLUMN bootstrap_bindings.channel_key IS 'Channel in the slot.';
COMMENT ON COLUMN bootstrap_bindings.updated_by IS 'Id of the user who filled it.';
COMMENT ON COLUMN bootstrap_bindings.updated_at IS 'When it was filled.';
CREATE INDEX bootstrap_bindings_channel ON bootstrap_bindings (channel_key) WHERE channel_key IS NOT NULL;
CREATE INDEX bootstrap_bindings_client ON bootstrap_bindings (client_key) WHERE client_key IS NOT NULL;

--
-- Views: what programs with a screen keep for their users
--

CREATE TABLE dashboards (
  id uuid CONSTRAINT dashboards_pkey PRIMARY KEY,
  domain_key bigint NOT NULL CONSTRAINT dashboards_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  user_key bigint NOT NULL CONSTRAINT dashboards_user_fkey REFERENCES users (key) ON DELETE CASCADE,
  name text NOT NULL,
  is_shared boolean NOT NULL,
  content jsonb NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE dashboards IS 'A dashboard of a user in a domain. The server does not read the content.';
COMMENT ON COLUMN dashboards.id IS 'Id of the dashboard.';
COMMENT ON COLUMN dashboards.domain_key IS 'The domain whose entities it shows.';
COMMENT ON COLUMN dashboards.user_key IS 'The user who created it, and who alone may change it.';
COMMENT ON COLUMN dashboards.name IS 'Name; several dashboards may have the same.';
COMMENT ON COLUMN dashboards.is_shared IS 'Whether every user who may enter the domain may view it.';
COMMENT ON COLUMN dashboards.content IS 'JSON object of the program that shows it.';
COMMENT ON COLUMN dashboards.created_at IS 'When it was created.';
COMMENT ON COLUMN dashboards.updated_at IS 'When it was last changed.';
CREATE INDEX dashboards_page ON dashboards (domain_key, user_key, name, id);
-- Without it, the removal of a user reads the whole table.
CREATE INDEX dashboards_user ON dashboards (user_key);

CREATE TABLE preferences (
  domain_key bigint CONSTRAINT preferences_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  user_key bigint CONSTRAINT preferences_user_fkey REFERENCES users (key) ON DELETE CASCADE,
  content jsonb NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT preferences_pkey PRIMARY KEY (user_key, domain_key)
);
COMMENT ON TABLE preferences IS 'What a program with a screen keeps for a user in a domain. The server does not read it.';
COMMENT ON COLUMN preferences.domain_key IS 'The domain.';
COMMENT ON COLUMN preferences.user_key IS 'The user.';
COMMENT ON COLUMN preferences.content IS 'JSON object of the program.';
COMMENT ON COLUMN preferences.updated_at IS 'When it was last replaced.';
CREATE INDEX preferences_domain ON preferences (domain_key);

--
-- Task manager: modules, tasks and workflows
--

CREATE TABLE modules (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT modules_pkey PRIMARY KEY,
  digest text NOT NULL
    CONSTRAINT modules_digest_check CHECK (digest ~ '^sha256:[0-9a-f]{64}$')
    CONSTRAINT modules_digest_key UNIQUE,
  size_bytes bigint NOT NULL,
  kind text NOT NULL CONSTRAINT modules_kind_check CHECK (kind IN ('core', 'component')),
  runtime text NOT NULL,
  exports jsonb NOT NULL,
  imports jsonb NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE modules IS 'WebAssembly modules by the digest of their bytes, read once: what a module exports and imports never changes.';
COMMENT ON COLUMN modules.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN modules.digest IS 'sha256: and the digest in hex.';
COMMENT ON COLUMN modules.size_bytes IS 'Size in bytes.';
COMMENT ON COLUMN modules.kind IS 'core or component.';
COMMENT ON COLUMN modules.runtime IS 'What a worker must offer to run it: core, wasi-preview1 or component.';
COMMENT ON COLUMN modules.exports IS 'Exported functions.';
COMMENT ON COLUMN modules.imports IS 'Imports of the module.';
COMMENT ON COLUMN modules.created_at IS 'When it was uploaded.';

CREATE TABLE module_chunks (
  module_key bigint CONSTRAINT module_chunks_module_fkey REFERENCES modules (key) ON DELETE CASCADE,
  chunk integer,
  data bytea NOT NULL,
  CONSTRAINT module_chunks_pkey PRIMARY KEY (module_key, chunk)
);
ALTER TABLE module_chunks ALTER COLUMN data SET STORAGE EXTERNAL;
COMMENT ON TABLE module_chunks IS 'Bytes of uploaded modules in parts of 256 KiB, so that every manager can serve a module without holding it whole.';
COMMENT ON COLUMN module_chunks.module_key IS 'The module.';
COMMENT ON COLUMN module_chunks.chunk IS 'Number of the part, from 0.';
COMMENT ON COLUMN module_chunks.data IS 'Bytes of the part. Not compressed: parts are read whole.';

CREATE TABLE module_uses (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT module_uses_pkey PRIMARY KEY,
  domain_key bigint CONSTRAINT module_uses_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  domain_id uuid,
  digest text NOT NULL CONSTRAINT module_uses_digest_check CHECK (digest ~ '^sha256:[0-9a-f]{64}$'),
  reference text NOT NULL,
  image_url text NOT NULL,
  size_bytes bigint NOT NULL,
  signed boolean NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  last_used_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT module_uses_domain_module_key UNIQUE NULLS NOT DISTINCT (domain_key, digest, reference)
);
COMMENT ON TABLE module_uses IS 'Which domain used which module of a registry. Written when a reference is resolved, at most once a minute for each.';
COMMENT ON COLUMN module_uses.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN module_uses.domain_key IS 'The domain; NULL: tasks of no domain.';
COMMENT ON COLUMN module_uses.domain_id IS 'Id of the domain.';
COMMENT ON COLUMN module_uses.digest IS 'Digest of the module.';
COMMENT ON COLUMN module_uses.reference IS 'Registry, repository and digest of the manifest.';
COMMENT ON COLUMN module_uses.image_url IS 'Reference in its last use.';
COMMENT ON COLUMN module_uses.size_bytes IS 'Size in bytes.';
COMMENT ON COLUMN module_uses.signed IS 'Whether a key of the domain''s policy signed it.';
COMMENT ON COLUMN module_uses.created_at IS 'When it was first used.';
COMMENT ON COLUMN module_uses.last_used_at IS 'When it was last used.';
CREATE INDEX module_uses_digest ON module_uses (digest);
CREATE INDEX module_uses_recent ON module_uses (coalesce(domain_key, 0), last_used_at DESC, key DESC);

CREATE TABLE module_policies (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT module_policies_pkey PRIMARY KEY,
  domain_key bigint CONSTRAINT module_policies_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  signatures text NOT NULL CONSTRAINT module_policies_signatures_check CHECK (signatures IN ('off', 'warn', 'require')),
  keys text[] NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT module_policies_domain_key UNIQUE NULLS NOT DISTINCT (domain_key)
);
COMMENT ON TABLE module_policies IS 'Rules for the signatures of modules.';
COMMENT ON COLUMN module_policies.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN module_policies.domain_key IS 'The domain; NULL: tasks of no domain.';
COMMENT ON COLUMN module_policies.signatures IS 'off, warn or require.';
COMMENT ON COLUMN module_policies.keys IS 'Public keys in PEM.';
COMMENT ON COLUMN module_policies.updated_at IS 'When it was last changed.';

CREATE TABLE workflows (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT workflows_pkey PRIMARY KEY,
  id uuid NOT NULL CONSTRAINT workflows_id_key UNIQUE,
  domain_key bigint CONSTRAINT workflows_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  domain_id uuid,
  name text NOT NULL,
  metadata jsonb NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE workflows IS 'Several tasks that depend on each other. A workflow starts its tasks; it has one open run at a time.';
COMMENT ON COLUMN workflows.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN workflows.id IS 'Id that users see.';
COMMENT ON COLUMN workflows.domain_key IS 'The domain; NULL: made without authorization.';
COMMENT ON COLUMN workflows.domain_id IS 'Id of the domain.';
COMMENT ON COLUMN workflows.name IS 'Name of the workflow.';
COMMENT ON COLUMN workflows.metadata IS 'Free-form JSON that users store with it.';
COMMENT ON COLUMN workflows.created_at IS 'When it was created.';
CREATE INDEX workflows_domain ON workflows (domain_key, key);

CREATE TABLE tasks (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT tasks_pkey PRIMARY KEY,
  id uuid NOT NULL CONSTRAINT tasks_id_key UNIQUE,
  domain_key bigint CONSTRAINT tasks_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  domain_id uuid,
  user_key bigint CONSTRAINT tasks_user_fkey REFERENCES users (key) ON DELETE SET NULL,
  name text NOT NULL,
  state smallint NOT NULL DEFAULT 0 CONSTRAINT tasks_state_check CHECK (state BETWEEN 0 AND 7),
  inputs json NOT NULL,
  cli_args json,
  env json NOT NULL,
  image_url text,
  module_key bigint CONSTRAINT tasks_module_fkey REFERENCES modules (key),
  function text,
  labels jsonb NOT NULL,
  worker_id uuid,
  priority smallint NOT NULL CONSTRAINT tasks_priority_check CHECK (priority BETWEEN 0 AND 100),
  timeout_ms bigint NOT NULL,
  memory_limit_bytes bigint NOT NULL,
  max_attempts smallint,
  backoff_ms bigint NOT NULL,
  on_lost text NOT NULL CONSTRAINT tasks_on_lost_check CHECK (on_lost IN ('requeue', 'fail', 'wait')),
  metadata jsonb NOT NULL,
  run_key bigint,
  start_time timestamptz,
  finish_time timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz,
  broadcast boolean NOT NULL DEFAULT false,
  daemon boolean NOT NULL DEFAULT false,
  schedule text,
  timezone text NOT NULL DEFAULT 'UTC',
  catch_up text NOT NULL DEFAULT 'none' CONSTRAINT tasks_catch_up_check CHECK (catch_up IN ('none', 'once')),
  next_tick_at timestamptz,
  trigger json,
  publish_result json,
  grants json NOT NULL DEFAULT '[]',
  secrets bytea,
  secret_names text[] NOT NULL DEFAULT '{}',
  depends_on text[] NOT NULL DEFAULT '{}',
  run_if text NOT NULL DEFAULT 'success' CONSTRAINT tasks_run_if_check CHECK (run_if IN ('success', 'failure', 'always')),
  workflow_key bigint CONSTRAINT tasks_workflow_fkey REFERENCES workflows (key) ON DELETE CASCADE,
  max_output_bytes integer NOT NULL DEFAULT 1048576
    CONSTRAINT tasks_max_output_bytes_check CHECK (max_output_bytes BETWEEN 1024 AND 16777216),
  CONSTRAINT tasks_run_check CHECK (state NOT IN (1, 2, 7) OR run_key IS NOT NULL),
  CONSTRAINT tasks_source_check CHECK (image_url IS NULL OR module_key IS NULL),
  CONSTRAINT tasks_tick_check CHECK (next_tick_at IS NULL OR schedule IS NOT NULL)
);
COMMENT ON TABLE tasks IS 'Tasks: what to run, with what and when.';
COMMENT ON COLUMN tasks.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN tasks.id IS 'Id that users see.';
COMMENT ON COLUMN tasks.domain_key IS 'The domain; NULL: made without authorization. It never changes.';
COMMENT ON COLUMN tasks.domain_id IS 'Id of the domain.';
COMMENT ON COLUMN tasks.user_key IS 'User the task acts as; NULL: none.';
COMMENT ON COLUMN tasks.name IS 'Name of the task.';
COMMENT ON COLUMN tasks.state IS '0 pending, 1 scheduled, 2 running, 3 completed, 4 failed, 5 skipped, 6 stopped, 7 unknown.';
COMMENT ON COLUMN tasks.inputs IS 'Inputs of the function.';
COMMENT ON COLUMN tasks.cli_args IS 'Command line arguments; NULL: none.';
COMMENT ON COLUMN tasks.env IS 'Environment variables.';
COMMENT ON COLUMN tasks.image_url IS 'Reference to a module in a registry; NULL: none.';
COMMENT ON COLUMN tasks.module_key IS 'Uploaded module; NULL: none.';
COMMENT ON COLUMN tasks.function IS 'Exported function to call; NULL: the start function.';
COMMENT ON COLUMN tasks.labels IS 'Labels that a worker must have.';
COMMENT ON COLUMN tasks.worker_id IS 'Id of the only worker that may run it; NULL: any.';
COMMENT ON COLUMN tasks.priority IS '0 to 100, higher first.';
COMMENT ON COLUMN tasks.timeout_ms IS 'Time limit of a run in milliseconds.';
COMMENT ON COLUMN tasks.memory_limit_bytes IS 'Memory limit in bytes.';
COMMENT ON COLUMN tasks.max_attempts IS 'Largest number of attempts; NULL: the default of the reason for which a run failed.';
COMMENT ON COLUMN tasks.backoff_ms IS 'Pause before the second attempt in milliseconds.';
COMMENT ON COLUMN tasks.on_lost IS 'What happens to a run whose worker was lost: requeue, fail or wait.';
COMMENT ON COLUMN tasks.metadata IS 'Free-form JSON that users store with it.';
COMMENT ON COLUMN tasks.run_key IS 'Run of the last start, whose result is that of the task. No reference: runs refer to tasks.';
COMMENT ON COLUMN tasks.start_time IS 'When the last run began.';
COMMENT ON COLUMN tasks.finish_time IS 'When the last run ended.';
COMMENT ON COLUMN tasks.created_at IS 'When it was created.';
COMMENT ON COLUMN tasks.updated_at IS 'When it was last changed; NULL: never.';
COMMENT ON COLUMN tasks.broadcast IS 'Whether it runs on every matching worker.';
COMMENT ON COLUMN tasks.daemon IS 'Whether it is started again whenever it ends.';
COMMENT ON COLUMN tasks.schedule IS 'Cron expression; NULL: none.';
COMMENT ON COLUMN tasks.timezone IS 'Time zone of the schedule.';
COMMENT ON COLUMN tasks.catch_up IS 'What follows ticks that passed while no manager ran: none or once.';
COMMENT ON COLUMN tasks.next_tick_at IS 'Next tick of the schedule; NULL: none.';
COMMENT ON COLUMN tasks.trigger IS 'Definition of the message trigger as given; NULL: none.';
COMMENT ON COLUMN tasks.publish_result IS 'Where results are published; NULL: nowhere.';
COMMENT ON COLUMN tasks.grants IS 'Capabilities of the guest, as given.';
COMMENT ON COLUMN tasks.secrets IS 'Names and values of secrets as encrypted JSON; NULL: none.';
COMMENT ON COLUMN tasks.secret_names IS 'Names of the secrets.';
COMMENT ON COLUMN tasks.depends_on IS 'Names of tasks of the same workflow that must end first.';
COMMENT ON COLUMN tasks.run_if IS 'Required outcome of these tasks: success, failure or always.';
COMMENT ON COLUMN tasks.workflow_key IS 'Workflow of the task; NULL: none.';
COMMENT ON COLUMN tasks.max_output_bytes IS 'How much of stdout and of stderr of a run is kept, in bytes.';
CREATE INDEX tasks_domain ON tasks (domain_key, key);
CREATE INDEX tasks_module ON tasks (module_key) WHERE module_key IS NOT NULL;
CREATE INDEX tasks_tick ON tasks (next_tick_at) WHERE next_tick_at IS NOT NULL;
-- Without it, the removal of a user reads the whole table.
CREATE INDEX tasks_user ON tasks (user_key) WHERE user_key IS NOT NULL;
-- Tasks of a workflow are named by their names.
CREATE UNIQUE INDEX tasks_workflow_name_key ON tasks (workflow_key, name) WHERE workflow_key IS NOT NULL;

CREATE TABLE workflow_runs (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT workflow_runs_pkey PRIMARY KEY,
  id uuid NOT NULL CONSTRAINT workflow_runs_id_key UNIQUE,
  workflow_key bigint NOT NULL CONSTRAINT workflow_runs_workflow_fkey REFERENCES workflows (key) ON DELETE CASCADE,
  state smallint NOT NULL CONSTRAINT workflow_runs_state_check CHECK (state IN (2, 3, 4, 6)),
  next_check_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  finished_at timestamptz,
  CONSTRAINT workflow_runs_deadline_check CHECK ((state = 2) = (next_check_at IS NOT NULL))
);
COMMENT ON TABLE workflow_runs IS 'Runs of workflows.';
COMMENT ON COLUMN workflow_runs.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN workflow_runs.id IS 'Id that users see.';
COMMENT ON COLUMN workflow_runs.workflow_key IS 'The workflow.';
COMMENT ON COLUMN workflow_runs.state IS 'As in tasks: 2 running, 3 completed, 4 failed, 6 stopped.';
COMMENT ON COLUMN workflow_runs.next_check_at IS 'When a manager must look at it again; NULL: it ended.';
COMMENT ON COLUMN workflow_runs.created_at IS 'When it was started.';
COMMENT ON COLUMN workflow_runs.finished_at IS 'When it ended; NULL: it did not.';
CREATE INDEX workflow_runs_due ON workflow_runs (next_check_at) WHERE next_check_at IS NOT NULL;
-- At most one open run of a workflow.
CREATE UNIQUE INDEX workflow_runs_open_key ON workflow_runs (workflow_key) WHERE next_check_at IS NOT NULL;
CREATE INDEX workflow_runs_workflow ON workflow_runs (workflow_key, key);

CREATE TABLE workflow_steps (
  workflow_run_key bigint CONSTRAINT workflow_steps_run_fkey REFERENCES workflow_runs (key) ON DELETE CASCADE,
  task_key bigint CONSTRAINT workflow_steps_task_fkey REFERENCES tasks (key) ON DELETE CASCADE,
  state smallint NOT NULL DEFAULT 0,
  run_id uuid NOT NULL,
  error text,
  CONSTRAINT workflow_steps_pkey PRIMARY KEY (workflow_run_key, task_key)
);
COMMENT ON TABLE workflow_steps IS 'Steps of a run of a workflow, one per task.';
COMMENT ON COLUMN workflow_steps.workflow_run_key IS 'The run of the workflow.';
COMMENT ON COLUMN workflow_steps.task_key IS 'The task.';
COMMENT ON COLUMN workflow_steps.state IS 'As in tasks: 0 waits for tasks that it depends on, 1 its run was started, 3 to 6 how it ended.';
COMMENT ON COLUMN workflow_steps.run_id IS 'Id of its run, made before the run is started, so that a repeated start starts nothing twice.';
COMMENT ON COLUMN workflow_steps.error IS 'Why the step failed; NULL: it did not.';
CREATE INDEX workflow_steps_task ON workflow_steps (task_key);

--
-- Task manager: runs
--

-- Rises at each assignment of a run, over all managers; stored with the run before the assignment is sent. No CACHE: a block of
-- numbers kept by one manager would let a later assignment carry a lower number.
CREATE SEQUENCE fence AS bigint;

CREATE TABLE runs (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT runs_pkey PRIMARY KEY,
  id uuid NOT NULL CONSTRAINT runs_id_key UNIQUE,
  task_key bigint NOT NULL CONSTRAINT runs_task_fkey REFERENCES tasks (key) ON DELETE CASCADE,
  drives_task boolean NOT NULL,
  state smallint NOT NULL CONSTRAINT runs_state_check CHECK (state BETWEEN 1 AND 7),
  spec json NOT NULL,
  module_digest text NOT NULL,
  needs text NOT NULL,
  priority smallint NOT NULL,
  attempt integer NOT NULL DEFAULT 1,
  fence bigint,
  worker_key bigint,
  queue_seq bigint,
  next_check_at timestamptz,
  checks smallint NOT NULL DEFAULT 0,
  cancel_requested_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  assigned_at timestamptz,
  running_at timestamptz,
  finished_at timestamptz,
  duration_ms double precision,
  prepare_ms double precision,
  reason text,
  error text,
  frames json,
  results json,
  result_digest text,
  result_bytes bigint,
  output_truncated boolean NOT NULL DEFAULT false,
  parent_id uuid,
  is_broadcast boolean NOT NULL DEFAULT false,
  domain_key bigint,
  cause json,
  CONSTRAINT runs_assigned_check CHECK (worker_key IS NULL OR fence IS NOT NULL),
  CONSTRAINT runs_deadline_check CHECK (state IN (1, 2, 7) = (next_check_at IS NOT NULL)),
  CONSTRAINT runs_queue_check CHECK (queue_seq IS NULL OR (worker_key IS NULL AND (state = 1)))
) WITH (fillfactor = 80);
COMMENT ON TABLE runs IS 'One row per run with its present attempt; earlier attempts are in run_attempts. An ordinary run is written three times: insert, running, result. No index contains state, so that running stays within its page.';
COMMENT ON COLUMN runs.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN runs.id IS 'Id that users see.';
COMMENT ON COLUMN runs.task_key IS 'The task.';
COMMENT ON COLUMN runs.drives_task IS 'Whether the state of the task follows the run: true for start, false for invoke.';
COMMENT ON COLUMN runs.state IS 'As in tasks, 1 to 7.';
COMMENT ON COLUMN runs.spec IS 'Everything that an assignment needs, frozen at the start: a later change of the task changes nothing here.';
COMMENT ON COLUMN runs.module_digest IS 'Digest of the module.';
COMMENT ON COLUMN runs.needs IS 'What the run needs of a worker: a hash in run_needs.';
COMMENT ON COLUMN runs.priority IS 'As in tasks.';
COMMENT ON COLUMN runs.attempt IS 'Number of the attempt, from 1.';
COMMENT ON COLUMN runs.fence IS 'Fence of the present assignment; NULL: never assigned.';
COMMENT ON COLUMN runs.worker_key IS 'Worker that has the run; NULL: none.';
COMMENT ON COLUMN runs.queue_seq IS 'Place in the queue while the run waits for a worker; NULL: assigned, waiting for its backoff, or ended.';
COMMENT ON COLUMN runs.next_check_at IS 'When a manager must look at it again; NULL: it ended.';
COMMENT ON COLUMN runs.checks IS 'How often no worker was found, for the backoff of next_check_at.';
COMMENT ON COLUMN runs.cancel_requested_at IS 'When it was asked to stop; NULL: it was not.';
COMMENT ON COLUMN runs.created_at IS 'When it was started.';
COMMENT ON COLUMN runs.assigned_at IS 'When the present attempt was assigned; NULL: it was not.';
COMMENT ON COLUMN runs.running_at IS 'When the present attempt began; NULL: it did not.';
COMMENT ON COLUMN runs.finished_at IS 'When the run ended; NULL: it did not.';
COMMENT ON COLUMN runs.duration_ms IS 'How long the guest ran, in milliseconds.';
COMMENT ON COLUMN runs.prepare_ms IS 'How long the worker prepared the module, in milliseconds.';
COMMENT ON COLUMN runs.reason IS 'Why the run failed; NULL: it did not.';
COMMENT ON COLUMN runs.error IS 'Message of the failure, with the last lines of stderr.';
COMMENT ON COLUMN runs.frames IS 'Stack of the guest after a trap, an array of text; NULL: none.';
COMMENT ON COLUMN runs.results IS 'Result, where it fits the row.';
COMMENT ON COLUMN runs.result_digest IS 'Digest of a result that does not fit: its bytes are in staged_results.';
COMMENT ON COLUMN runs.result_bytes IS 'Its size in bytes.';
COMMENT ON COLUMN runs.output_truncated IS 'Whether output was dropped at max_output_bytes.';
COMMENT ON COLUMN runs.parent_id IS 'Id of the broadcast that the run belongs to; NULL: none.';
COMMENT ON COLUMN runs.is_broadcast IS 'Whether the run is a broadcast: no worker gets it, and each of its runs on a worker names it as parent.';
COMMENT ON COLUMN runs.domain_key IS 'Domain of the task, as there. No reference: the run is removed with its task.';
COMMENT ON COLUMN runs.cause IS 'Why it was started: {type, …}, as it is shown.';
-- The runs of a message.
CREATE INDEX runs_message ON runs ((cause ->> 'message')) WHERE cause ->> 'message' IS NOT NULL;
-- What managers must tell workers to stop.
CREATE INDEX runs_cancelled ON runs (worker_key) WHERE (cancel_requested_at IS NOT NULL) AND (next_check_at IS NOT NULL);
-- The runs of a domain, newest first. None of its columns ever changes.
CREATE INDEX runs_domain ON runs (domain_key, created_at, key);
CREATE INDEX runs_due ON runs (next_check_at) WHERE next_check_at IS NOT NULL;
CREATE INDEX runs_held ON runs (worker_key) WHERE next_check_at IS NOT NULL;
CREATE INDEX runs_parent ON runs (parent_id) WHERE parent_id IS NOT NULL;
-- The queue, as runs are claimed: per need by priority, then by age. queue_seq is set exactly while state = 1 and no worker has
-- the run.
CREATE INDEX runs_queue ON runs (needs, priority DESC, queue_seq) WHERE queue_seq IS NOT NULL;
CREATE INDEX runs_staged ON runs (result_digest) WHERE result_digest IS NOT NULL;
CREATE INDEX runs_task ON runs (task_key, key);

CREATE TABLE run_attempts (
  run_key bigint CONSTRAINT run_attempts_run_fkey REFERENCES runs (key) ON DELETE CASCADE,
  fence bigint,
  attempt integer NOT NULL,
  worker_key bigint,
  assigned_at timestamptz,
  running_at timestamptz,
  ended_at timestamptz NOT NULL DEFAULT now(),
  reason text NOT NULL,
  error text,
  CONSTRAINT run_attempts_pkey PRIMARY KEY (run_key, fence)
);
COMMENT ON TABLE run_attempts IS 'Attempts that ended without ending their run.';
COMMENT ON COLUMN run_attempts.run_key IS 'The run.';
COMMENT ON COLUMN run_attempts.fence IS 'Fence of the assignment.';
COMMENT ON COLUMN run_attempts.attempt IS 'Number of the attempt.';
COMMENT ON COLUMN run_attempts.worker_key IS 'Worker that had it; NULL: none.';
COMMENT ON COLUMN run_attempts.assigned_at IS 'When it was assigned.';
COMMENT ON COLUMN run_attempts.running_at IS 'When it began; NULL: it did not.';
COMMENT ON COLUMN run_attempts.ended_at IS 'When it ended.';
COMMENT ON COLUMN run_attempts.reason IS 'Why it failed.';
COMMENT ON COLUMN run_attempts.error IS 'Message of the failure.';

CREATE TABLE run_logs (
  run_key bigint CONSTRAINT run_logs_run_fkey REFERENCES runs (key) ON DELETE CASCADE,
  stream smallint CONSTRAINT run_logs_stream_check CHECK (stream IN (1, 2)),
  byte_offset bigint,
  data bytea NOT NULL,
  truncated boolean NOT NULL,
  CONSTRAINT run_logs_pkey PRIMARY KEY (run_key, stream, byte_offset)
);
COMMENT ON TABLE run_logs IS 'Output of runs as it came, limited per run and stream.';
COMMENT ON COLUMN run_logs.run_key IS 'The run.';
COMMENT ON COLUMN run_logs.stream IS '1 stdout, 2 stderr.';
COMMENT ON COLUMN run_logs.byte_offset IS 'Offset of the first byte in the stream.';
COMMENT ON COLUMN run_logs.data IS 'The bytes.';
COMMENT ON COLUMN run_logs.truncated IS 'Whether output was dropped after it.';

CREATE TABLE run_needs (
  hash text CONSTRAINT run_needs_pkey PRIMARY KEY,
  definition jsonb NOT NULL
);
COMMENT ON TABLE run_needs IS 'What runs need of a worker (worker, labels, runtime, memory class, domain), one row per combination.';
COMMENT ON COLUMN run_needs.hash IS 'Hash of the definition.';
COMMENT ON COLUMN run_needs.definition IS 'The needs.';

CREATE TABLE run_start_keys (
  task_key bigint CONSTRAINT run_start_keys_task_fkey REFERENCES tasks (key) ON DELETE CASCADE,
  user_key bigint,
  idempotency_key text,
  body_digest text NOT NULL,
  run_id uuid NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT run_start_keys_pkey PRIMARY KEY (task_key, user_key, idempotency_key)
);
COMMENT ON TABLE run_start_keys IS 'Idempotency-Keys of starts, kept for 24 hours: one run per key; the same key with another body is refused.';
COMMENT ON COLUMN run_start_keys.task_key IS 'The task.';
COMMENT ON COLUMN run_start_keys.user_key IS 'The caller; 0: none.';
COMMENT ON COLUMN run_start_keys.idempotency_key IS 'The key.';
COMMENT ON COLUMN run_start_keys.body_digest IS 'Digest of the request body.';
COMMENT ON COLUMN run_start_keys.run_id IS 'Id of the run that it started.';
COMMENT ON COLUMN run_start_keys.created_at IS 'When it was created.';
CREATE INDEX run_start_keys_age ON run_start_keys (created_at);

CREATE TABLE staged_results (
  digest text,
  byte_offset bigint,
  data bytea NOT NULL,
  staged_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT staged_results_pkey PRIMARY KEY (digest, byte_offset)
);
COMMENT ON TABLE staged_results IS 'Parts of results above 256 KiB, stored by digest before the result names them.';
COMMENT ON COLUMN staged_results.digest IS 'Digest of the whole result.';
COMMENT ON COLUMN staged_results.byte_offset IS 'Offset of the part.';
COMMENT ON COLUMN staged_results.data IS 'Bytes of the part.';
COMMENT ON COLUMN staged_results.staged_at IS 'When it was stored.';

CREATE TABLE task_events (
  seq bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT task_events_pkey PRIMARY KEY,
  xid xid8 NOT NULL DEFAULT position_xid(),
  occurred_at timestamptz NOT NULL DEFAULT now(),
  events json NOT NULL
);
COMMENT ON TABLE task_events IS 'Every change of state of tasks and runs, one row per transaction of a writer: the log that /events follows.';
COMMENT ON COLUMN task_events.seq IS 'Second half of the position.';
COMMENT ON COLUMN task_events.xid IS 'First half of the position: the transaction.';
COMMENT ON COLUMN task_events.occurred_at IS 'When it was written.';
COMMENT ON COLUMN task_events.events IS 'The changes.';
CREATE INDEX task_events_position ON task_events (xid, seq);

--
-- Task manager: workers
--

CREATE TABLE workers (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT workers_pkey PRIMARY KEY,
  id uuid NOT NULL CONSTRAINT workers_id_key UNIQUE,
  domain_key bigint CONSTRAINT workers_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  domain_id uuid,
  name text NOT NULL,
  secret_hash bytea NOT NULL,
  boot_id text NOT NULL,
  version text NOT NULL,
  labels jsonb NOT NULL,
  os text NOT NULL,
  arch text NOT NULL,
  cpu_cores integer NOT NULL,
  memory_bytes bigint NOT NULL,
  slots integer NOT NULL,
  backlog integer NOT NULL,
  runtimes text[] NOT NULL,
  draining boolean NOT NULL DEFAULT false,
  session_epoch bigint NOT NULL,
  manager_id text,
  lease_until timestamptz NOT NULL,
  last_alive_at timestamptz NOT NULL,
  alive_history timestamptz[] NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  revoked_at timestamptz,
  isolation text NOT NULL DEFAULT '',
  platform_only boolean NOT NULL DEFAULT false
);
COMMENT ON TABLE workers IS 'Registered workers.';
COMMENT ON COLUMN workers.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN workers.id IS 'Id that users see.';
COMMENT ON COLUMN workers.domain_key IS 'Domain whose tasks alone it runs; NULL: a worker of the platform.';
COMMENT ON COLUMN workers.domain_id IS 'Id of the domain.';
COMMENT ON COLUMN workers.name IS 'Name of the worker.';
COMMENT ON COLUMN workers.secret_hash IS 'SHA-256 of the secret that the registration returned.';
COMMENT ON COLUMN workers.boot_id IS 'Id of the start of its process.';
COMMENT ON COLUMN workers.version IS 'Version of Skein that it runs.';
COMMENT ON COLUMN workers.labels IS 'Labels that tasks can ask for.';
COMMENT ON COLUMN workers.os IS 'Operating system.';
COMMENT ON COLUMN workers.arch IS 'Processor architecture.';
COMMENT ON COLUMN workers.cpu_cores IS 'Number of processor cores.';
COMMENT ON COLUMN workers.memory_bytes IS 'Memory in bytes.';
COMMENT ON COLUMN workers.slots IS 'Number of runs at a time.';
COMMENT ON COLUMN workers.backlog IS 'Number of runs that it accepts beyond its slots.';
COMMENT ON COLUMN workers.runtimes IS 'Kinds of modules that it runs.';
COMMENT ON COLUMN workers.draining IS 'Whether it gets no more runs.';
COMMENT ON COLUMN workers.session_epoch IS 'Rises at every registration and when the worker is declared lost; a write under an older epoch is ignored.';
COMMENT ON COLUMN workers.manager_id IS 'Manager that holds its session; NULL: declared lost, nothing is assigned to it.';
COMMENT ON COLUMN workers.lease_until IS 'When it is declared lost unless it renews.';
COMMENT ON COLUMN workers.last_alive_at IS 'When it last renewed.';
COMMENT ON COLUMN workers.alive_history IS 'The last ten renewals, the newest last.';
COMMENT ON COLUMN workers.created_at IS 'When it registered first.';
COMMENT ON COLUMN workers.revoked_at IS 'When its owner revoked it; NULL: not. Only a join token brings it back, as another worker.';
COMMENT ON COLUMN workers.isolation IS 'Isolation of guests: namespace, uid or process; empty: not reported.';
COMMENT ON COLUMN workers.platform_only IS 'Whether it runs no tasks of domains, because its guests share a user with the files of the platform and the platform is reachable from other machines.';
CREATE INDEX workers_domain ON workers (domain_key) WHERE domain_key IS NOT NULL;
-- Workers that are to be declared lost.
CREATE INDEX workers_lease ON workers (lease_until) WHERE manager_id IS NOT NULL;

CREATE TABLE worker_certificates (
  fingerprint text CONSTRAINT worker_certificates_pkey PRIMARY KEY,
  worker_key bigint NOT NULL CONSTRAINT worker_certificates_worker_fkey REFERENCES workers (key) ON DELETE CASCADE,
  issued_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL
);
COMMENT ON TABLE worker_certificates IS 'Certificates issued to workers. A worker that has one presents it at every TLS connection; a certificate without a row is refused.';
COMMENT ON COLUMN worker_certificates.fingerprint IS 'SHA-256 of the certificate.';
COMMENT ON COLUMN worker_certificates.worker_key IS 'The worker.';
COMMENT ON COLUMN worker_certificates.issued_at IS 'When it was issued.';
COMMENT ON COLUMN worker_certificates.expires_at IS 'When it expires.';
CREATE INDEX worker_certificates_worker ON worker_certificates (worker_key);

CREATE TABLE worker_tokens (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT worker_tokens_pkey PRIMARY KEY,
  token_hash bytea NOT NULL CONSTRAINT worker_tokens_hash_key UNIQUE,
  domain_key bigint CONSTRAINT worker_tokens_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  domain_id uuid,
  expires_at timestamptz,
  uses_left integer CONSTRAINT worker_tokens_uses_check CHECK (uses_left >= 0),
  created_at timestamptz NOT NULL DEFAULT now(),
  id uuid CONSTRAINT worker_tokens_id_key UNIQUE,
  created_by uuid
);
COMMENT ON TABLE worker_tokens IS 'Join tokens of workers.';
COMMENT ON COLUMN worker_tokens.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN worker_tokens.token_hash IS 'SHA-256 of the secret.';
COMMENT ON COLUMN worker_tokens.domain_key IS 'Domain of the workers that join with it; NULL: workers of the platform.';
COMMENT ON COLUMN worker_tokens.domain_id IS 'Id of the domain.';
COMMENT ON COLUMN worker_tokens.expires_at IS 'When it expires; NULL: never.';
COMMENT ON COLUMN worker_tokens.uses_left IS 'How often it can still be used; NULL: any number of times.';
COMMENT ON COLUMN worker_tokens.created_at IS 'When it was created.';
COMMENT ON COLUMN worker_tokens.id IS 'Id that users see; NULL: a token that was not made over HTTP.';
COMMENT ON COLUMN worker_tokens.created_by IS 'Id of the user who made it; NULL: none.';
CREATE INDEX worker_tokens_domain ON worker_tokens (domain_key) WHERE domain_key IS NOT NULL;

--
-- Queues between the platform and the task manager
--

CREATE TABLE task_triggers (
  task_key bigint
    CONSTRAINT task_triggers_pkey PRIMARY KEY
    CONSTRAINT task_triggers_task_fkey REFERENCES tasks (key) ON DELETE CASCADE,
  channel_key bigint NOT NULL CONSTRAINT task_triggers_channel_fkey REFERENCES channels (key) ON DELETE CASCADE,
  subtopic text NOT NULL,
  name text,
  comparator text CONSTRAINT task_triggers_comparator_check CHECK (comparator IN ('eq', 'lt', 'le', 'gt', 'ge')),
  value double precision,
  debounce_ms bigint,
  rate_count integer,
  rate_ms bigint,
  window_at timestamptz,
  window_count integer NOT NULL DEFAULT 0,
  matched bigint NOT NULL DEFAULT 0,
  dropped bigint NOT NULL DEFAULT 0,
  dropped_reason text,
  last_match_at timestamptz,
  CONSTRAINT task_triggers_rate_check CHECK ((rate_count IS NULL) = (rate_ms IS NULL)),
  CONSTRAINT task_triggers_when_check CHECK ((comparator IS NULL) = (value IS NULL))
);
COMMENT ON TABLE task_triggers IS 'Which messages start which task, and what became of those that did not.';
COMMENT ON COLUMN task_triggers.task_key IS 'The task.';
COMMENT ON COLUMN task_triggers.channel_key IS 'Channel of the messages.';
COMMENT ON COLUMN task_triggers.subtopic IS 'This subtopic and those below it; empty: all.';
COMMENT ON COLUMN task_triggers.name IS 'Records of this name; NULL: all.';
COMMENT ON COLUMN task_triggers.comparator IS 'Comparison with value: eq, lt, le, gt or ge; NULL: none.';
COMMENT ON COLUMN task_triggers.value IS 'Number that values are compared with.';
COMMENT ON COLUMN task_triggers.debounce_ms IS 'Pause in milliseconds without a match before the last one starts a run; NULL: none.';
COMMENT ON COLUMN task_triggers.rate_count IS 'Largest number of runs per rate_ms; NULL: unlimited.';
COMMENT ON COLUMN task_triggers.rate_ms IS 'Window of rate_count in milliseconds.';
COMMENT ON COLUMN task_triggers.window_at IS 'Start of the present window.';
COMMENT ON COLUMN task_triggers.window_count IS 'Runs in the present window.';
COMMENT ON COLUMN task_triggers.matched IS 'Number of messages that matched.';
COMMENT ON COLUMN task_triggers.dropped IS 'Number of matches that started no run.';
COMMENT ON COLUMN task_triggers.dropped_reason IS 'Why the last of those was dropped; NULL: none was.';
COMMENT ON COLUMN task_triggers.last_match_at IS 'When a message last matched.';
CREATE INDEX task_triggers_channel ON task_triggers (channel_key);

CREATE TABLE task_messages (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT task_messages_pkey PRIMARY KEY,
  task_key bigint NOT NULL CONSTRAINT task_messages_task_fkey REFERENCES tasks (key) ON DELETE CASCADE,
  origin text NOT NULL,
  message json NOT NULL,
  traceparent text,
  due_at timestamptz NOT NULL DEFAULT now(),
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT task_messages_origin_key UNIQUE (task_key, origin)
);
COMMENT ON TABLE task_messages IS 'Messages that start a run: written in the transaction of the position in the log of messages, processed by any manager.';
COMMENT ON COLUMN task_messages.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN task_messages.task_key IS 'The task.';
COMMENT ON COLUMN task_messages.origin IS 'The message, or the page of a replay: the same origin starts one run.';
COMMENT ON COLUMN task_messages.message IS '{channel_id, subtopic, publisher, protocol, records}';
COMMENT ON COLUMN task_messages.traceparent IS 'Place of the message in its trace (W3C Trace Context); null: it is not traced.';
COMMENT ON COLUMN task_messages.due_at IS 'When it may be taken.';
COMMENT ON COLUMN task_messages.created_at IS 'When it was queued.';
CREATE INDEX task_messages_due ON task_messages (due_at, key);

CREATE TABLE task_publications (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT task_publications_pkey PRIMARY KEY,
  domain_key bigint NOT NULL CONSTRAINT task_publications_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  user_key bigint NOT NULL CONSTRAINT task_publications_user_fkey REFERENCES users (key) ON DELETE CASCADE,
  channel_id uuid NOT NULL,
  subtopic text NOT NULL,
  payload text NOT NULL,
  task_key bigint NOT NULL,
  run_id uuid NOT NULL,
  fence bigint NOT NULL,
  call_id bigint NOT NULL,
  traceparent text,
  attempts smallint NOT NULL DEFAULT 0,
  due_at timestamptz NOT NULL DEFAULT now(),
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT task_publications_call_key UNIQUE (run_id, fence, call_id)
);
COMMENT ON TABLE task_publications IS 'Messages that tasks publish: written in the transaction of the result or call, published by any process of the platform, which stores each once under (run, fence, call).';
COMMENT ON COLUMN task_publications.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN task_publications.domain_key IS 'Domain of the channel.';
COMMENT ON COLUMN task_publications.user_key IS 'User who publishes.';
COMMENT ON COLUMN task_publications.channel_id IS 'Id of the channel.';
COMMENT ON COLUMN task_publications.subtopic IS 'Subtopic; empty: the channel itself.';
COMMENT ON COLUMN task_publications.payload IS 'A SenML pack.';
COMMENT ON COLUMN task_publications.task_key IS 'The task.';
COMMENT ON COLUMN task_publications.run_id IS 'Id of the run.';
COMMENT ON COLUMN task_publications.fence IS 'Fence of its assignment.';
COMMENT ON COLUMN task_publications.call_id IS 'Number of the guest''s call; 0: the result of the run.';
COMMENT ON COLUMN task_publications.traceparent IS 'Place of the run in its trace (W3C Trace Context); null: it is not traced.';
COMMENT ON COLUMN task_publications.attempts IS 'Number of failed attempts.';
COMMENT ON COLUMN task_publications.due_at IS 'When it may be taken.';
COMMENT ON COLUMN task_publications.created_at IS 'When it was queued.';
CREATE INDEX task_publications_domain ON task_publications (domain_key);
CREATE INDEX task_publications_due ON task_publications (due_at, key);
CREATE INDEX task_publications_user ON task_publications (user_key);

CREATE TABLE task_replays (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT task_replays_pkey PRIMARY KEY,
  id uuid NOT NULL CONSTRAINT task_replays_id_key UNIQUE,
  task_key bigint NOT NULL CONSTRAINT task_replays_task_fkey REFERENCES tasks (key) ON DELETE CASCADE,
  user_key bigint NOT NULL CONSTRAINT task_replays_user_fkey REFERENCES users (key) ON DELETE CASCADE,
  channel_id uuid NOT NULL,
  from_time double precision NOT NULL,
  to_time double precision NOT NULL,
  next_offset bigint NOT NULL DEFAULT 0,
  due_at timestamptz NOT NULL DEFAULT now(),
  created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE task_replays IS 'Stored messages that a task is to run over.';
COMMENT ON COLUMN task_replays.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN task_replays.id IS 'Id that users see.';
COMMENT ON COLUMN task_replays.task_key IS 'The task.';
COMMENT ON COLUMN task_replays.user_key IS 'User whose access applies.';
COMMENT ON COLUMN task_replays.channel_id IS 'Id of the channel.';
COMMENT ON COLUMN task_replays.from_time IS 'Earliest time of a record in seconds since 1970.';
COMMENT ON COLUMN task_replays.to_time IS 'Time before which records end, in seconds since 1970.';
COMMENT ON COLUMN task_replays.next_offset IS 'Records that were replayed.';
COMMENT ON COLUMN task_replays.due_at IS 'When it may be taken.';
COMMENT ON COLUMN task_replays.created_at IS 'When it was requested.';
CREATE INDEX task_replays_due ON task_replays (due_at, key);
CREATE INDEX task_replays_task ON task_replays (task_key);
CREATE INDEX task_replays_user ON task_replays (user_key);

-- Enough for the first messages; retention makes the next ones.
SELECT create_message_partitions(now(), now());
