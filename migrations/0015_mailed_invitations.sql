-- expand: people without an account are invited to a domain by mail
CREATE TABLE mailed_invitations (
  domain_key bigint NOT NULL,
  email text NOT NULL,
  token_hash bytea NOT NULL,
  invited_by uuid NOT NULL,
  role_key bigint NOT NULL,
  relation text,
  created_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL,
  CONSTRAINT mailed_invitations_pkey PRIMARY KEY (domain_key, email),
  CONSTRAINT mailed_invitations_token_key UNIQUE (token_hash),
  CONSTRAINT mailed_invitations_domain_fkey FOREIGN KEY (domain_key) REFERENCES domains(key) ON DELETE CASCADE
);
COMMENT ON TABLE mailed_invitations IS 'Invitations to addresses without an account. The registration with the link turns one into a row of invitations.';
COMMENT ON COLUMN mailed_invitations.domain_key IS 'Domain to which the address is invited.';
COMMENT ON COLUMN mailed_invitations.email IS 'Address of the mail, in lower case.';
COMMENT ON COLUMN mailed_invitations.token_hash IS 'SHA-256 of the token in the link of the mail.';
COMMENT ON COLUMN mailed_invitations.invited_by IS 'Id of the user who sent it.';
COMMENT ON COLUMN mailed_invitations.role_key IS 'As in invitations.';
COMMENT ON COLUMN mailed_invitations.relation IS 'As in invitations.';
COMMENT ON COLUMN mailed_invitations.created_at IS 'When it was sent last.';
COMMENT ON COLUMN mailed_invitations.expires_at IS 'When its link is no longer valid.';
