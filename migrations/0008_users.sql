-- expand: tokens that are sent by mail, the end of deleted users, and the orders and searches of the list of users

-- What a link in a mail carries, as its hash. A row that is gone, late, or of another address than the user's is worth nothing.
CREATE TABLE mailed_tokens (
  -- SHA-256; the token itself stands in the mail alone.
  token_hash bytea CONSTRAINT mailed_tokens_pkey PRIMARY KEY,
  user_key bigint NOT NULL CONSTRAINT mailed_tokens_user_fkey REFERENCES users (key) ON DELETE CASCADE,
  purpose text NOT NULL CONSTRAINT mailed_tokens_purpose_check CHECK (purpose IN ('recovery', 'verification')),
  -- The address that it was sent to.
  email text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL
);
CREATE INDEX mailed_tokens_user ON mailed_tokens (user_key, purpose, created_at);
CREATE INDEX mailed_tokens_expiry ON mailed_tokens (expires_at);

CREATE INDEX users_deleted ON users (deleted_at) WHERE status = 'deleted';
-- What a platform administrator lists; everybody else comes by his grants and by whom he owns.
CREATE INDEX users_order ON users (status, coalesce(updated_at, created_at), created_at, id);
CREATE INDEX users_name_trgm ON users USING gin (name gin_trgm_ops);
CREATE INDEX users_first_name_trgm ON users USING gin (first_name gin_trgm_ops);
CREATE INDEX users_last_name_trgm ON users USING gin (last_name gin_trgm_ops);
CREATE INDEX users_email_trgm ON users USING gin (email gin_trgm_ops);
CREATE INDEX users_username_trgm ON users USING gin (username gin_trgm_ops);

-- Whoever administers the platform was put there by its settings or by another administrator: the switch that asks for
-- verified addresses must not lock him out.
UPDATE users SET verified_at = created_at WHERE role = 'admin' AND email IS NOT NULL AND verified_at IS NULL;
