-- expand: profiles of bootstrap configurations, and what is bound to their slots

-- A template of what devices are given. It holds no secret.
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
CREATE INDEX bootstrap_profiles_order ON bootstrap_profiles (domain_key, created_at, key);

-- A profile that is used is not deleted; SET NULL is for the moment in which its whole domain goes.
ALTER TABLE bootstrap_configs
  ADD COLUMN profile_key bigint CONSTRAINT bootstrap_configs_profile_fkey REFERENCES bootstrap_profiles (key) ON DELETE SET NULL,
  -- Variables of this one device, as JSON.
  ADD COLUMN render_context_sealed bytea;
CREATE INDEX bootstrap_configs_profile ON bootstrap_configs (profile_key) WHERE profile_key IS NOT NULL;

-- What a configuration fills the slots of its profile with.
CREATE TABLE bootstrap_bindings (
  config_key bigint NOT NULL CONSTRAINT bootstrap_bindings_config_fkey REFERENCES bootstrap_configs (client_key) ON DELETE CASCADE,
  slot text NOT NULL,
  client_key bigint CONSTRAINT bootstrap_bindings_client_fkey REFERENCES clients (key) ON DELETE CASCADE,
  channel_key bigint CONSTRAINT bootstrap_bindings_channel_fkey REFERENCES channels (key) ON DELETE CASCADE,
  updated_by uuid,
  updated_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT bootstrap_bindings_pkey PRIMARY KEY (config_key, slot),
  CONSTRAINT bootstrap_bindings_one_check CHECK (num_nonnulls(client_key, channel_key) = 1)
);
CREATE INDEX bootstrap_bindings_client ON bootstrap_bindings (client_key) WHERE client_key IS NOT NULL;
CREATE INDEX bootstrap_bindings_channel ON bootstrap_bindings (channel_key) WHERE channel_key IS NOT NULL;
