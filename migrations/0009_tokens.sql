-- expand: API keys, personal access tokens with scopes, addresses that logged in before, how long signing keys verify

-- How long the tokens that a key signed may live at the most: so long it verifies after it was retired.
ALTER TABLE signing_keys ADD COLUMN max_token_seconds bigint NOT NULL DEFAULT 86400
  CONSTRAINT signing_keys_max_token_check CHECK (max_token_seconds > 0);

-- The list of a user's sessions, newest first.
CREATE INDEX sessions_user_order ON sessions (user_key, created_at DESC, id);

CREATE TABLE api_keys (
  key bigint CONSTRAINT api_keys_pkey PRIMARY KEY DEFAULT nextval('entity_keys'),
  id uuid NOT NULL CONSTRAINT api_keys_id_key UNIQUE,
  user_key bigint NOT NULL CONSTRAINT api_keys_user_fkey REFERENCES users (key) ON DELETE CASCADE,
  -- The domain to which the login that made it was bound; NULL: none.
  domain_key bigint CONSTRAINT api_keys_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  -- SHA-256 of the whole text: a forged signature alone makes no key.
  token_hash bytea NOT NULL,
  -- Which signing key signed it; that one verifies as long as this row lives.
  kid text NOT NULL,
  issued_at timestamptz NOT NULL DEFAULT now(),
  -- NULL: never.
  expires_at timestamptz,
  last_used_at timestamptz
);
CREATE INDEX api_keys_user ON api_keys (user_key, issued_at DESC, id);
CREATE INDEX api_keys_domain ON api_keys (domain_key);
CREATE INDEX api_keys_kid ON api_keys (kid);
CREATE INDEX api_keys_expiry ON api_keys (expires_at);

CREATE TABLE pats (
  key bigint CONSTRAINT pats_pkey PRIMARY KEY DEFAULT nextval('entity_keys'),
  id uuid NOT NULL CONSTRAINT pats_id_key UNIQUE,
  user_key bigint NOT NULL CONSTRAINT pats_user_fkey REFERENCES users (key) ON DELETE CASCADE,
  name text NOT NULL,
  description text NOT NULL DEFAULT '',
  -- SHA-256 of the whole text, which holds 32 random bytes.
  secret_hash bytea NOT NULL,
  issued_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL,
  updated_at timestamptz,
  last_used_at timestamptz,
  revoked_at timestamptz
);
CREATE INDEX pats_user ON pats (user_key, issued_at DESC, id);

-- What a personal access token may do. Entities are named by key, so that another one that comes to have the same id later
-- is not meant.
CREATE TABLE pat_scopes (
  key bigint CONSTRAINT pat_scopes_pkey PRIMARY KEY DEFAULT nextval('entity_keys'),
  id uuid NOT NULL CONSTRAINT pat_scopes_id_key UNIQUE,
  pat_key bigint NOT NULL CONSTRAINT pat_scopes_pat_fkey REFERENCES pats (key) ON DELETE CASCADE,
  entity_type text NOT NULL,
  operation text NOT NULL,
  -- NULL: no domain was named.
  domain_key bigint CONSTRAINT pat_scopes_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  -- As the owner wrote it; NULL: any entity. Without a key beside it it means nothing that exists here.
  entity_id uuid,
  entity_key bigint,
  CONSTRAINT pat_scopes_scope_key UNIQUE NULLS NOT DISTINCT (pat_key, entity_type, operation, domain_key, entity_id, entity_key)
);
CREATE INDEX pat_scopes_domain ON pat_scopes (domain_key);

-- From where a user has logged in: such an address is not shut out while somebody else guesses his password.
CREATE TABLE known_addresses (
  user_key bigint NOT NULL CONSTRAINT known_addresses_user_fkey REFERENCES users (key) ON DELETE CASCADE,
  -- IPv4, or the first 64 bits of IPv6.
  address text NOT NULL,
  last_success_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT known_addresses_pkey PRIMARY KEY (user_key, address)
);
