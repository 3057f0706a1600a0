-- expand: bootstrap configurations and certificates

-- Certificates of clients. No reference to the client: a certificate is named on the list of revoked ones until it expires,
-- and clients may be gone before.
CREATE TABLE certificates (
  -- Lower-case hex of the serial number.
  serial text CONSTRAINT certificates_pkey PRIMARY KEY,
  -- SHA-256 of the whole certificate: by it a handshake finds its client.
  fingerprint bytea NOT NULL CONSTRAINT certificates_fingerprint_key UNIQUE,
  -- Key identifier of the authority that signed it.
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
CREATE INDEX certificates_client ON certificates (client_key, created_at DESC, serial);
CREATE INDEX certificates_domain ON certificates (domain_key, created_at DESC, serial);
CREATE INDEX certificates_revoked ON certificates (authority, not_after) WHERE revoked_at IS NOT NULL;
CREATE INDEX certificates_expiry ON certificates (not_after);

-- Whatever removes a client, its certificates are revoked in the same moment.
CREATE FUNCTION certificates_end_with_client() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE certificates SET revoked_at = now()
   WHERE revoked_at IS NULL AND client_key IN (SELECT key FROM gone);
  RETURN NULL;
END
$$;
CREATE TRIGGER certificates_end_with_client AFTER DELETE ON clients
  REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION certificates_end_with_client();

-- What a device is given for its external id and key.
CREATE TABLE bootstrap_configs (
  client_key bigint CONSTRAINT bootstrap_configs_pkey PRIMARY KEY
    CONSTRAINT bootstrap_configs_client_fkey REFERENCES clients (key) ON DELETE CASCADE,
  domain_key bigint NOT NULL CONSTRAINT bootstrap_configs_domain_fkey REFERENCES domains (key) ON DELETE CASCADE,
  external_id text NOT NULL,
  -- Keyed digest of the external key, for the lookup; the key itself sealed, for whoever may update the client.
  external_key_mac bytea NOT NULL,
  external_key_sealed bytea NOT NULL,
  name text NOT NULL DEFAULT '',
  content text NOT NULL DEFAULT '',
  client_cert text NOT NULL DEFAULT '',
  client_private_key_sealed bytea,
  ca_cert text NOT NULL DEFAULT '',
  -- Whether it is to be active; it is while all its channels are connected in both directions.
  is_enabled boolean NOT NULL DEFAULT false,
  created_by uuid,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_by uuid,
  updated_at timestamptz,
  CONSTRAINT bootstrap_configs_external_id_key UNIQUE (domain_key, external_id),
  CONSTRAINT bootstrap_configs_external_key_key UNIQUE (external_id, external_key_mac)
);
CREATE INDEX bootstrap_configs_order ON bootstrap_configs (domain_key, created_at, client_key);

CREATE TABLE bootstrap_channels (
  client_key bigint NOT NULL CONSTRAINT bootstrap_channels_config_fkey REFERENCES bootstrap_configs (client_key) ON DELETE CASCADE,
  channel_key bigint NOT NULL CONSTRAINT bootstrap_channels_channel_fkey REFERENCES channels (key) ON DELETE CASCADE,
  -- Order in which they were named.
  place integer NOT NULL,
  CONSTRAINT bootstrap_channels_pkey PRIMARY KEY (client_key, channel_key)
);
CREATE INDEX bootstrap_channels_channel ON bootstrap_channels (channel_key);
