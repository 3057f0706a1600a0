-- expand: modules of registries and their policies

-- Which domain used which module of a registry, for people who ask. Written when a reference is resolved, at most once a
-- minute for each.
CREATE TABLE module_uses (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT module_uses_pkey PRIMARY KEY,
  -- NULL: by a task of no domain
  domain_key bigint CONSTRAINT module_uses_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  domain_id uuid,
  digest text NOT NULL CONSTRAINT module_uses_digest_check CHECK (digest ~ '^sha256:[0-9a-f]{64}$'),
  -- with registry, repository and manifest digest
  reference text NOT NULL,
  -- as it was asked for last
  image_url text NOT NULL,
  size_bytes bigint NOT NULL,
  -- a key of the domain's policy signed it
  signed boolean NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  last_used_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT module_uses_domain_module_key UNIQUE NULLS NOT DISTINCT (domain_key, digest, reference)
);
CREATE INDEX module_uses_recent ON module_uses (coalesce(domain_key, 0), last_used_at DESC, key DESC);
CREATE INDEX module_uses_digest ON module_uses (digest);

-- What is asked of the signatures of modules.
CREATE TABLE module_policies (
  key bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT module_policies_pkey PRIMARY KEY,
  -- NULL: for tasks of no domain
  domain_key bigint CONSTRAINT module_policies_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  signatures text NOT NULL CONSTRAINT module_policies_signatures_check CHECK (signatures IN ('off', 'warn', 'require')),
  -- public keys in PEM
  keys text[] NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT module_policies_domain_key UNIQUE NULLS NOT DISTINCT (domain_key)
);
