-- expand: the grace of a deleted domain and its removal, invitations, and an index for every reference that cascades

-- Set when the removal of a domain begins, after its grace: from then on nothing brings it back.
ALTER TABLE domains ADD COLUMN purge_started_at timestamptz;
CREATE INDEX domains_deleted ON domains (deleted_at) WHERE status = 'deleted';
-- What a platform administrator lists; everybody else comes by his grants.
CREATE INDEX domains_order ON domains (status, coalesce(updated_at, created_at), created_at, id);
CREATE INDEX domains_name_trgm ON domains USING gin (name gin_trgm_ops);

-- Without these (and those of 0006_roles), the removal of a domain or user reads the whole table once for each row that goes.
CREATE INDEX tasks_user ON tasks (user_key) WHERE user_key IS NOT NULL;
CREATE INDEX worker_tokens_domain ON worker_tokens (domain_key) WHERE domain_key IS NOT NULL;

-- One for each user and domain; it stays when it is answered, so that its sender sees how.
CREATE TABLE invitations (
  domain_key bigint NOT NULL CONSTRAINT invitations_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  user_key bigint NOT NULL CONSTRAINT invitations_user_fkey REFERENCES users (key) ON DELETE CASCADE,
  invited_by uuid NOT NULL,
  -- 0: the built-in role. No reference: a role may go while an invitation to it waits, and no key is used twice.
  role_key bigint NOT NULL,
  -- The word of the older generations that the role stands for; NULL: the invitation named the role itself.
  relation text,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz,
  -- Accepting it afterwards is refused.
  expires_at timestamptz NOT NULL,
  confirmed_at timestamptz,
  rejected_at timestamptz,
  CONSTRAINT invitations_pkey PRIMARY KEY (domain_key, user_key),
  CONSTRAINT invitations_answer_check CHECK (confirmed_at IS NULL OR rejected_at IS NULL)
);
CREATE INDEX invitations_user ON invitations (user_key);
CREATE INDEX invitations_inviter ON invitations (invited_by);
