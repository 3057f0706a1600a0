-- The schema that the migrations make, for reading. Written by `npm run generate`, never by hand; a change of the
-- schema is a new file in this folder.

CREATE EXTENSION pg_trgm;

CREATE SEQUENCE entity_keys AS bigint;

CREATE SEQUENCE fence AS bigint;

CREATE OR REPLACE FUNCTION certificates_end_with_client()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
  UPDATE certificates SET revoked_at = now()
   WHERE revoked_at IS NULL AND client_key IN (SELECT key FROM gone);
  RETURN NULL;
END
$function$;

CREATE OR REPLACE FUNCTION count_entities()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
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
$function$;

CREATE OR REPLACE FUNCTION create_message_partitions(from_time timestamp with time zone, until_time timestamp with time zone)
 RETURNS integer
 LANGUAGE plpgsql
AS $function$
DECLARE
  parent text;
  days integer;
  unit text;
  lower_bound timestamp;
  partition text;
  made integer := 0;
BEGIN
  FOREACH parent IN ARRAY ARRAY['records', 'payloads', 'rollups'] LOOP
    FOREACH days IN ARRAY ARRAY[7, 30, 90, 365, 3650, 0] LOOP
      unit := message_partition_unit(days);
      lower_bound := date_trunc(unit, from_time AT TIME ZONE 'UTC');
      WHILE lower_bound <= until_time AT TIME ZONE 'UTC' LOOP
        partition := format('%s_r%s_%s', parent, days, to_char(lower_bound, 'YYYYMMDD'));
        IF to_regclass(partition) IS NULL THEN
          EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS) WITH (fillfactor = %s)', partition, parent,
            CASE parent WHEN 'rollups' THEN 50 ELSE 100 END);
          EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent || '_r' || days, partition,
            lower_bound AT TIME ZONE 'UTC', (lower_bound + ('1 ' || unit)::interval) AT TIME ZONE 'UTC');
          made := made + 1;
        END IF;
        lower_bound := lower_bound + ('1 ' || unit)::interval;
      END LOOP;
    END LOOP;
  END LOOP;
  RETURN made;
END $function$;

CREATE OR REPLACE FUNCTION journal_note_departed()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
  IF TG_TABLE_NAME = 'users' THEN
    INSERT INTO departed_entities (key, type, id) SELECT key, 'user', id FROM gone;
  ELSIF TG_TABLE_NAME = 'domains' THEN
    DELETE FROM departed_entities d USING gone WHERE d.domain_key = gone.key;
    INSERT INTO departed_entities (key, type, id) SELECT key, 'domain', id FROM gone;
  ELSIF TG_TABLE_NAME = 'groups' THEN
    INSERT INTO departed_entities (key, type, domain_key, id, parent_group_key)
    SELECT key, 'group', domain_key, id, parent_key FROM gone
     WHERE EXISTS (SELECT FROM domains d WHERE d.key = gone.domain_key);
  ELSE
    INSERT INTO departed_entities (key, type, domain_key, id, parent_group_key)
    SELECT key, TG_ARGV[0], domain_key, id, parent_group_key FROM gone
     WHERE EXISTS (SELECT FROM domains d WHERE d.key = gone.domain_key);
  END IF;
  RETURN NULL;
END
$function$;

CREATE OR REPLACE FUNCTION journal_note_subjects()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
  INSERT INTO journal_subjects (entity_key, occurred_at, xid, seq, operation)
  SELECT DISTINCT subject.key, added.occurred_at, added.xid, added.seq, added.operation
    FROM added, unnest(added.entity_keys || added.actor_key) AS subject (key)
   WHERE subject.key > 0;
  RETURN NULL;
END
$function$;

CREATE OR REPLACE FUNCTION journal_uncount_days()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
  MERGE INTO journal_days d USING (
    SELECT scope.key, (gone.occurred_at AT TIME ZONE 'UTC')::date AS day, gone.operation, count(*) AS total
      FROM gone CROSS JOIN LATERAL (
        SELECT DISTINCT key FROM unnest(gone.entity_keys || gone.actor_key || gone.domain_key) AS named (key)) scope
     GROUP BY 1, 2, 3) uncounted
     ON d.scope_key = uncounted.key AND d.day = uncounted.day AND d.operation = uncounted.operation
   WHEN MATCHED AND d.total <= uncounted.total THEN DELETE
   WHEN MATCHED THEN UPDATE SET total = d.total - uncounted.total;
  RETURN NULL;
END
$function$;

CREATE OR REPLACE FUNCTION message_partition_unit(retention_days integer)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
RETURN CASE WHEN ((retention_days >= 1) AND (retention_days <= 90)) THEN 'week'::text ELSE 'month'::text END;

CREATE OR REPLACE FUNCTION notification_deliveries_have_an_owner()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
  SELECT n.user_key INTO NEW.user_key FROM notification_subscriptions n WHERE n.key = NEW.subscription_key;
  RETURN NEW;
END
$function$;

CREATE TABLE api_keys (
  key bigint NOT NULL DEFAULT nextval('entity_keys'::regclass),
  id uuid NOT NULL,
  user_key bigint NOT NULL,
  domain_key bigint,
  token_hash bytea NOT NULL,
  kid text NOT NULL,
  issued_at timestamp with time zone NOT NULL DEFAULT now(),
  expires_at timestamp with time zone,
  last_used_at timestamp with time zone,
  CONSTRAINT api_keys_pkey PRIMARY KEY (key),
  CONSTRAINT api_keys_id_key UNIQUE (id)
);
CREATE INDEX api_keys_domain ON api_keys USING btree (domain_key);
CREATE INDEX api_keys_expiry ON api_keys USING btree (expires_at);
CREATE INDEX api_keys_kid ON api_keys USING btree (kid);
CREATE INDEX api_keys_user ON api_keys USING btree (user_key, issued_at DESC, id);

CREATE TABLE bootstrap_bindings (
  config_key bigint NOT NULL,
  slot text NOT NULL,
  client_key bigint,
  channel_key bigint,
  updated_by uuid,
  updated_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT bootstrap_bindings_pkey PRIMARY KEY (config_key, slot),
  CONSTRAINT bootstrap_bindings_one_check CHECK ((num_nonnulls(client_key, channel_key) = 1))
);
CREATE INDEX bootstrap_bindings_channel ON bootstrap_bindings USING btree (channel_key) WHERE (channel_key IS NOT NULL);
CREATE INDEX bootstrap_bindings_client ON bootstrap_bindings USING btree (client_key) WHERE (client_key IS NOT NULL);

CREATE TABLE bootstrap_channels (
  client_key bigint NOT NULL,
  channel_key bigint NOT NULL,
  place integer NOT NULL,
  CONSTRAINT bootstrap_channels_pkey PRIMARY KEY (client_key, channel_key)
);
CREATE INDEX bootstrap_channels_channel ON bootstrap_channels USING btree (channel_key);

CREATE TABLE bootstrap_configs (
  client_key bigint NOT NULL,
  domain_key bigint NOT NULL,
  external_id text NOT NULL,
  external_key_mac bytea NOT NULL,
  external_key_sealed bytea NOT NULL,
  name text NOT NULL DEFAULT ''::text,
  content text NOT NULL DEFAULT ''::text,
  client_cert text NOT NULL DEFAULT ''::text,
  client_private_key_sealed bytea,
  ca_cert text NOT NULL DEFAULT ''::text,
  is_enabled boolean NOT NULL DEFAULT false,
  created_by uuid,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  updated_by uuid,
  updated_at timestamp with time zone,
  profile_key bigint,
  render_context_sealed bytea,
  CONSTRAINT bootstrap_configs_pkey PRIMARY KEY (client_key),
  CONSTRAINT bootstrap_configs_external_id_key UNIQUE (domain_key, external_id),
  CONSTRAINT bootstrap_configs_external_key_key UNIQUE (external_id, external_key_mac)
);
CREATE INDEX bootstrap_configs_order ON bootstrap_configs USING btree (domain_key, created_at, client_key);
CREATE INDEX bootstrap_configs_profile ON bootstrap_configs USING btree (profile_key) WHERE (profile_key IS NOT NULL);

CREATE TABLE bootstrap_profiles (
  key bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  id uuid NOT NULL,
  domain_key bigint NOT NULL,
  name text NOT NULL,
  description text NOT NULL DEFAULT ''::text,
  content_format text NOT NULL,
  content_type text NOT NULL,
  content_template text NOT NULL DEFAULT ''::text,
  defaults jsonb NOT NULL DEFAULT '{}'::jsonb,
  binding_slots jsonb NOT NULL DEFAULT '[]'::jsonb,
  version integer NOT NULL DEFAULT 1,
  created_by uuid,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  updated_by uuid,
  updated_at timestamp with time zone,
  CONSTRAINT bootstrap_profiles_pkey PRIMARY KEY (key),
  CONSTRAINT bootstrap_profiles_format_check CHECK ((content_format = ANY (ARRAY['go-template'::text, 'raw'::text, 'json'::text, 'yaml'::text, 'toml'::text]))),
  CONSTRAINT bootstrap_profiles_id_key UNIQUE (id)
);
CREATE INDEX bootstrap_profiles_order ON bootstrap_profiles USING btree (domain_key, created_at, key);

CREATE TABLE certificates (
  serial text NOT NULL,
  fingerprint bytea NOT NULL,
  authority text NOT NULL,
  domain_key bigint NOT NULL,
  client_key bigint NOT NULL,
  client_id uuid NOT NULL,
  pem text NOT NULL,
  not_before timestamp with time zone NOT NULL,
  not_after timestamp with time zone NOT NULL,
  created_by uuid,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  revoked_at timestamp with time zone,
  CONSTRAINT certificates_pkey PRIMARY KEY (serial),
  CONSTRAINT certificates_fingerprint_key UNIQUE (fingerprint)
);
CREATE INDEX certificates_client ON certificates USING btree (client_key, created_at DESC, serial);
CREATE INDEX certificates_domain ON certificates USING btree (domain_key, created_at DESC, serial);
CREATE INDEX certificates_expiry ON certificates USING btree (not_after);
CREATE INDEX certificates_revoked ON certificates USING btree (authority, not_after) WHERE (revoked_at IS NOT NULL);

CREATE TABLE channels (
  key bigint NOT NULL DEFAULT nextval('entity_keys'::regclass),
  domain_key bigint NOT NULL,
  id uuid NOT NULL,
  name text NOT NULL DEFAULT ''::text,
  description text,
  route text,
  tags text[] NOT NULL DEFAULT '{}'::text[],
  metadata jsonb NOT NULL DEFAULT '{}'::jsonb,
  status text NOT NULL DEFAULT 'enabled'::text,
  parent_group_key bigint,
  retention_days integer,
  created_by uuid,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  updated_by uuid,
  updated_at timestamp with time zone,
  CONSTRAINT channels_pkey PRIMARY KEY (key),
  CONSTRAINT channels_id_key UNIQUE (domain_key, id),
  CONSTRAINT channels_retention_check CHECK ((retention_days > 0)),
  CONSTRAINT channels_status_check CHECK ((status = ANY (ARRAY['enabled'::text, 'disabled'::text])))
);
CREATE INDEX channels_created_by ON channels USING btree (domain_key, created_by, status);
CREATE INDEX channels_id ON channels USING btree (id);
CREATE INDEX channels_in_group_by_status ON channels USING btree (parent_group_key) INCLUDE (key, status) WHERE (parent_group_key IS NOT NULL);
CREATE INDEX channels_metadata ON channels USING gin (metadata jsonb_path_ops);
CREATE INDEX channels_name_trgm ON channels USING gin (name gin_trgm_ops);
CREATE INDEX channels_page ON channels USING btree (domain_key, status, COALESCE(updated_at, created_at), created_at, id) INCLUDE (key, updated_at, parent_group_key);
CREATE INDEX channels_page_any_status ON channels USING btree (domain_key, COALESCE(updated_at, created_at), created_at, id) INCLUDE (key, updated_at, status, parent_group_key);
CREATE INDEX channels_page_created ON channels USING btree (domain_key, created_at, id) INCLUDE (key, status, parent_group_key);
CREATE INDEX channels_page_long_name ON channels USING btree (domain_key, "left"(name, 256), created_at, id) WHERE (char_length(name) > 256);
CREATE INDEX channels_page_short_name ON channels USING btree (domain_key, name, created_at, id) INCLUDE (key, status, parent_group_key) WHERE (char_length(name) <= 256);
CREATE UNIQUE INDEX channels_route_key ON channels USING btree (domain_key, lower(route));
CREATE INDEX channels_status_by_key ON channels USING btree (key) INCLUDE (status);
CREATE INDEX channels_tags ON channels USING gin (tags);

CREATE TABLE client_presence (
  client_key bigint NOT NULL,
  node text NOT NULL,
  protocol smallint NOT NULL,
  sessions integer NOT NULL,
  subscriptions integer NOT NULL,
  CONSTRAINT client_presence_pkey PRIMARY KEY (client_key, node, protocol)
);
CREATE INDEX client_presence_node_idx ON client_presence USING btree (node);

CREATE TABLE client_telemetry (
  client_key bigint NOT NULL,
  first_seen timestamp with time zone NOT NULL,
  last_seen timestamp with time zone NOT NULL,
  inbound_messages bigint NOT NULL,
  outbound_messages bigint NOT NULL DEFAULT 0,
  is_online boolean NOT NULL DEFAULT false,
  state_since timestamp with time zone,
  CONSTRAINT client_telemetry_pkey PRIMARY KEY (client_key)
);

CREATE TABLE clients (
  key bigint NOT NULL DEFAULT nextval('entity_keys'::regclass),
  domain_key bigint NOT NULL,
  id uuid NOT NULL,
  name text NOT NULL DEFAULT ''::text,
  tags text[] NOT NULL DEFAULT '{}'::text[],
  identity text NOT NULL DEFAULT ''::text,
  secret_mac bytea NOT NULL,
  secret_sealed bytea NOT NULL,
  metadata jsonb NOT NULL DEFAULT '{}'::jsonb,
  status text NOT NULL DEFAULT 'enabled'::text,
  parent_group_key bigint,
  created_by uuid,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  updated_by uuid,
  updated_at timestamp with time zone,
  CONSTRAINT clients_pkey PRIMARY KEY (key),
  CONSTRAINT clients_id_key UNIQUE (domain_key, id),
  CONSTRAINT clients_secret_key UNIQUE (domain_key, secret_mac),
  CONSTRAINT clients_status_check CHECK ((status = ANY (ARRAY['enabled'::text, 'disabled'::text])))
);
CREATE INDEX clients_created_by ON clients USING btree (domain_key, created_by, status);
CREATE INDEX clients_in_group_by_status ON clients USING btree (parent_group_key) INCLUDE (key, status) WHERE (parent_group_key IS NOT NULL);
CREATE INDEX clients_metadata ON clients USING gin (metadata jsonb_path_ops);
CREATE INDEX clients_name_trgm ON clients USING gin (name gin_trgm_ops);
CREATE INDEX clients_page ON clients USING btree (domain_key, status, COALESCE(updated_at, created_at), created_at, id) INCLUDE (key, updated_at, parent_group_key);
CREATE INDEX clients_page_any_status ON clients USING btree (domain_key, COALESCE(updated_at, created_at), created_at, id) INCLUDE (key, updated_at, status, parent_group_key);
CREATE INDEX clients_page_created ON clients USING btree (domain_key, created_at, id) INCLUDE (key, status, parent_group_key);
CREATE INDEX clients_page_long_name ON clients USING btree (domain_key, "left"(name, 256), created_at, id) WHERE (char_length(name) > 256);
CREATE INDEX clients_page_short_name ON clients USING btree (domain_key, name, created_at, id) INCLUDE (key, status, parent_group_key) WHERE (char_length(name) <= 256);
CREATE INDEX clients_secret ON clients USING btree (secret_mac);
CREATE INDEX clients_status_by_key ON clients USING btree (key) INCLUDE (status);
CREATE INDEX clients_tags ON clients USING gin (tags);

CREATE TABLE connections (
  client_key bigint NOT NULL,
  channel_key bigint NOT NULL,
  domain_key bigint NOT NULL,
  types smallint NOT NULL,
  created_by uuid,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  updated_at timestamp with time zone,
  CONSTRAINT connections_pkey PRIMARY KEY (client_key, channel_key),
  CONSTRAINT connections_types_check CHECK (((types >= 1) AND (types <= 3)))
);
CREATE INDEX connections_channel ON connections USING btree (channel_key, client_key);

CREATE TABLE consumers (
  name text NOT NULL,
  xid xid8 NOT NULL,
  seq bigint NOT NULL,
  updated_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT consumers_pkey PRIMARY KEY (name)
);

CREATE TABLE departed_entities (
  key bigint NOT NULL,
  type text NOT NULL,
  domain_key bigint,
  id uuid NOT NULL,
  parent_group_key bigint,
  departed_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT departed_entities_pkey PRIMARY KEY (key)
);
CREATE INDEX departed_entities_domain ON departed_entities USING btree (domain_key);
CREATE INDEX departed_entities_id ON departed_entities USING btree (id, type);
CREATE INDEX departed_entities_time ON departed_entities USING btree (departed_at);

CREATE TABLE domain_usage (
  domain_key bigint NOT NULL,
  day date NOT NULL,
  messages bigint NOT NULL,
  records bigint NOT NULL,
  CONSTRAINT domain_usage_pkey PRIMARY KEY (domain_key, day)
);

CREATE TABLE domains (
  key bigint NOT NULL DEFAULT nextval('entity_keys'::regclass),
  id uuid NOT NULL,
  name text NOT NULL,
  route text NOT NULL,
  tags text[] NOT NULL DEFAULT '{}'::text[],
  metadata jsonb NOT NULL DEFAULT '{}'::jsonb,
  status text NOT NULL DEFAULT 'enabled'::text,
  retention_days integer,
  home smallint NOT NULL DEFAULT 0,
  created_by uuid,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  updated_by uuid,
  updated_at timestamp with time zone,
  deleted_at timestamp with time zone,
  purge_started_at timestamp with time zone,
  CONSTRAINT domains_pkey PRIMARY KEY (key),
  CONSTRAINT domains_id_key UNIQUE (id),
  CONSTRAINT domains_retention_check CHECK ((retention_days > 0)),
  CONSTRAINT domains_status_check CHECK ((status = ANY (ARRAY['enabled'::text, 'disabled'::text, 'freezed'::text, 'deleted'::text])))
);
CREATE INDEX domains_deleted ON domains USING btree (deleted_at) WHERE (status = 'deleted'::text);
CREATE INDEX domains_name_trgm ON domains USING gin (name gin_trgm_ops);
CREATE INDEX domains_order ON domains USING btree (status, COALESCE(updated_at, created_at), created_at, id);
CREATE UNIQUE INDEX domains_route_key ON domains USING btree (lower(route));

CREATE TABLE entity_counts (
  domain_key bigint NOT NULL,
  entity_type text NOT NULL,
  status text NOT NULL,
  amount bigint NOT NULL
);
CREATE INDEX entity_counts_of ON entity_counts USING btree (domain_key, entity_type, status) INCLUDE (amount);

CREATE TABLE grants (
  user_key bigint NOT NULL,
  entity_type text NOT NULL,
  domain_key bigint NOT NULL,
  entity_key bigint NOT NULL,
  role_key bigint NOT NULL DEFAULT 0,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT grants_pkey PRIMARY KEY (user_key, domain_key, entity_type, entity_key, role_key),
  CONSTRAINT grants_entity_type_check CHECK ((entity_type = ANY (ARRAY['domain'::text, 'group'::text, 'channel'::text, 'client'::text])))
);
CREATE INDEX grants_domain ON grants USING btree (domain_key, entity_type);
CREATE INDEX grants_entity ON grants USING btree (entity_key, role_key);

CREATE TABLE group_closure (
  ancestor_key bigint NOT NULL,
  descendant_key bigint NOT NULL,
  depth smallint NOT NULL,
  CONSTRAINT group_closure_pkey PRIMARY KEY (ancestor_key, descendant_key),
  CONSTRAINT group_closure_depth_check CHECK (((depth >= 0) AND (depth <= 20)))
);
CREATE INDEX group_closure_descendant ON group_closure USING btree (descendant_key, depth);

CREATE TABLE groups (
  key bigint NOT NULL DEFAULT nextval('entity_keys'::regclass),
  domain_key bigint NOT NULL,
  id uuid NOT NULL,
  parent_key bigint,
  name text NOT NULL,
  description text,
  tags text[] NOT NULL DEFAULT '{}'::text[],
  metadata jsonb NOT NULL DEFAULT '{}'::jsonb,
  status text NOT NULL DEFAULT 'enabled'::text,
  created_by uuid,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  updated_by uuid,
  updated_at timestamp with time zone,
  CONSTRAINT groups_pkey PRIMARY KEY (key),
  CONSTRAINT groups_id_key UNIQUE (domain_key, id),
  CONSTRAINT groups_status_check CHECK ((status = ANY (ARRAY['enabled'::text, 'disabled'::text])))
);
CREATE INDEX groups_created ON groups USING btree (domain_key, created_at, id);
CREATE INDEX groups_created_by ON groups USING btree (domain_key, created_by, status);
CREATE INDEX groups_domain_order ON groups USING btree (domain_key, status, COALESCE(updated_at, created_at), created_at, id);
CREATE INDEX groups_id ON groups USING btree (id);
CREATE INDEX groups_metadata ON groups USING gin (metadata jsonb_path_ops);
CREATE INDEX groups_name_trgm ON groups USING gin (name gin_trgm_ops);
CREATE INDEX groups_page_any_status ON groups USING btree (domain_key, COALESCE(updated_at, created_at), created_at, id);
CREATE INDEX groups_page_long_name ON groups USING btree (domain_key, "left"(name, 256), created_at, id) WHERE (char_length(name) > 256);
CREATE INDEX groups_page_short_name ON groups USING btree (domain_key, name, created_at, id) INCLUDE (key, status) WHERE (char_length(name) <= 256);
CREATE INDEX groups_parent ON groups USING btree (parent_key);
CREATE INDEX groups_tags ON groups USING gin (tags);

CREATE TABLE idempotency_keys (
  scope bytea NOT NULL,
  request_digest bytea NOT NULL,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT idempotency_keys_pkey PRIMARY KEY (scope)
);
CREATE INDEX idempotency_keys_created_at_idx ON idempotency_keys USING btree (created_at);

CREATE TABLE ingest_batches (
  seq bigint NOT NULL GENERATED BY DEFAULT AS IDENTITY,
  batch uuid NOT NULL,
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  arrived_at timestamp with time zone NOT NULL DEFAULT now(),
  messages integer NOT NULL,
  records integer NOT NULL,
  min_time timestamp with time zone,
  max_time timestamp with time zone,
  folded boolean NOT NULL DEFAULT false,
  envelopes text,
  cleared_channels bigint[],
  CONSTRAINT ingest_batches_pkey PRIMARY KEY (seq),
  CONSTRAINT ingest_batches_batch_key UNIQUE (batch)
);
CREATE INDEX ingest_batches_cleared_idx ON ingest_batches USING btree (xid, seq) WHERE (cleared_channels IS NOT NULL);
CREATE INDEX ingest_batches_position_idx ON ingest_batches USING btree (xid, seq);
CREATE INDEX ingest_batches_unfolded_idx ON ingest_batches USING btree (seq) WHERE (NOT folded);

CREATE TABLE installation (
  name text NOT NULL,
  value jsonb NOT NULL,
  updated_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT installation_pkey PRIMARY KEY (name)
);

CREATE TABLE invitations (
  domain_key bigint NOT NULL,
  user_key bigint NOT NULL,
  invited_by uuid NOT NULL,
  role_key bigint NOT NULL,
  relation text,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  updated_at timestamp with time zone,
  expires_at timestamp with time zone NOT NULL,
  confirmed_at timestamp with time zone,
  rejected_at timestamp with time zone,
  CONSTRAINT invitations_pkey PRIMARY KEY (domain_key, user_key),
  CONSTRAINT invitations_answer_check CHECK (((confirmed_at IS NULL) OR (rejected_at IS NULL)))
);
CREATE INDEX invitations_inviter ON invitations USING btree (invited_by);
CREATE INDEX invitations_user ON invitations USING btree (user_key);

CREATE TABLE journal (
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  seq bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  occurred_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
  operation text NOT NULL,
  domain_key bigint,
  actor_kind text NOT NULL,
  actor_key bigint,
  actor_id uuid,
  address text,
  request_id text,
  entity_keys bigint[] NOT NULL,
  attributes jsonb NOT NULL DEFAULT '{}'::jsonb,
  token_type text,
  super_admin boolean NOT NULL DEFAULT false,
  CONSTRAINT journal_pkey PRIMARY KEY (xid, seq),
  CONSTRAINT journal_actor_kind_check CHECK ((actor_kind = ANY (ARRAY['user'::text, 'client'::text, 'system'::text])))
) WITH (autovacuum_vacuum_insert_scale_factor=0.02);
CREATE INDEX journal_domain_operation ON journal USING btree (domain_key, operation, occurred_at, xid, seq);
CREATE INDEX journal_domain_position ON journal USING btree (domain_key, xid, seq);
CREATE INDEX journal_domain_time ON journal USING btree (domain_key, occurred_at, xid, seq);

CREATE TABLE journal_days (
  scope_key bigint NOT NULL,
  day date NOT NULL,
  operation text NOT NULL,
  total bigint NOT NULL,
  CONSTRAINT journal_days_pkey PRIMARY KEY (scope_key, day, operation)
);

CREATE TABLE journal_subjects (
  entity_key bigint NOT NULL,
  occurred_at timestamp with time zone NOT NULL,
  xid xid8 NOT NULL,
  seq bigint NOT NULL,
  operation text NOT NULL,
  CONSTRAINT journal_subjects_pkey PRIMARY KEY (entity_key, occurred_at, xid, seq) INCLUDE (operation)
) WITH (autovacuum_vacuum_insert_scale_factor=0.02);

CREATE TABLE journal_totals (
  scope_key bigint NOT NULL,
  operation text NOT NULL,
  total bigint NOT NULL,
  CONSTRAINT journal_totals_pkey PRIMARY KEY (scope_key, operation)
);

CREATE TABLE known_addresses (
  user_key bigint NOT NULL,
  address text NOT NULL,
  last_success_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT known_addresses_pkey PRIMARY KEY (user_key, address)
);

CREATE TABLE latest_records (
  channel_key bigint NOT NULL,
  series_key bigint NOT NULL,
  "time" timestamp with time zone NOT NULL,
  arrived_at timestamp with time zone NOT NULL,
  batch_seq bigint NOT NULL,
  message integer NOT NULL,
  run integer NOT NULL,
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
) WITH (fillfactor=45);

CREATE TABLE mailed_tokens (
  token_hash bytea NOT NULL,
  user_key bigint NOT NULL,
  purpose text NOT NULL,
  email text NOT NULL,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  expires_at timestamp with time zone NOT NULL,
  CONSTRAINT mailed_tokens_pkey PRIMARY KEY (token_hash),
  CONSTRAINT mailed_tokens_purpose_check CHECK ((purpose = ANY (ARRAY['recovery'::text, 'verification'::text])))
);
CREATE INDEX mailed_tokens_expiry ON mailed_tokens USING btree (expires_at);
CREATE INDEX mailed_tokens_user ON mailed_tokens USING btree (user_key, purpose, created_at);

CREATE TABLE module_chunks (
  module_key bigint NOT NULL,
  chunk integer NOT NULL,
  data bytea STORAGE EXTERNAL NOT NULL,
  CONSTRAINT module_chunks_pkey PRIMARY KEY (module_key, chunk)
);

CREATE TABLE module_policies (
  key bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  domain_key bigint,
  signatures text NOT NULL,
  keys text[] NOT NULL,
  updated_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT module_policies_pkey PRIMARY KEY (key),
  CONSTRAINT module_policies_domain_key UNIQUE NULLS NOT DISTINCT (domain_key),
  CONSTRAINT module_policies_signatures_check CHECK ((signatures = ANY (ARRAY['off'::text, 'warn'::text, 'require'::text])))
);

CREATE TABLE module_uses (
  key bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  domain_key bigint,
  domain_id uuid,
  digest text NOT NULL,
  reference text NOT NULL,
  image_url text NOT NULL,
  size_bytes bigint NOT NULL,
  signed boolean NOT NULL,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  last_used_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT module_uses_pkey PRIMARY KEY (key),
  CONSTRAINT module_uses_digest_check CHECK ((digest ~ '^sha256:[0-9a-f]{64}$'::text)),
  CONSTRAINT module_uses_domain_module_key UNIQUE NULLS NOT DISTINCT (domain_key, digest, reference)
);
CREATE INDEX module_uses_digest ON module_uses USING btree (digest);
CREATE INDEX module_uses_recent ON module_uses USING btree (COALESCE(domain_key, (0)::bigint), last_used_at DESC, key DESC);

CREATE TABLE modules (
  key bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  digest text NOT NULL,
  size_bytes bigint NOT NULL,
  kind text NOT NULL,
  runtime text NOT NULL,
  exports jsonb NOT NULL,
  imports jsonb NOT NULL,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT modules_pkey PRIMARY KEY (key),
  CONSTRAINT modules_digest_check CHECK ((digest ~ '^sha256:[0-9a-f]{64}$'::text)),
  CONSTRAINT modules_digest_key UNIQUE (digest),
  CONSTRAINT modules_kind_check CHECK ((kind = ANY (ARRAY['core'::text, 'component'::text])))
);

CREATE TABLE mqtt_groups (
  key bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  channel_key bigint NOT NULL,
  name text NOT NULL,
  filter text NOT NULL,
  node text,
  epoch bigint NOT NULL DEFAULT 1,
  "position" text,
  CONSTRAINT mqtt_groups_pkey PRIMARY KEY (key),
  CONSTRAINT mqtt_groups_name_key UNIQUE (channel_key, name, filter)
);
CREATE INDEX mqtt_groups_node_idx ON mqtt_groups USING btree (node) WHERE (node IS NOT NULL);

CREATE TABLE mqtt_nodes (
  node text NOT NULL,
  seen_at timestamp with time zone NOT NULL DEFAULT now(),
  "position" text,
  CONSTRAINT mqtt_nodes_pkey PRIMARY KEY (node)
);

CREATE TABLE mqtt_outbound (
  session_key bigint NOT NULL,
  ordinal bigint NOT NULL,
  packet_id integer NOT NULL,
  qos smallint NOT NULL,
  state smallint NOT NULL,
  batch_seq bigint,
  message integer,
  channel_key bigint NOT NULL,
  subtopic text NOT NULL,
  facts jsonb NOT NULL,
  payload bytea NOT NULL,
  CONSTRAINT mqtt_outbound_pkey PRIMARY KEY (session_key, ordinal)
);

CREATE TABLE mqtt_passed (
  group_key bigint NOT NULL,
  batch_seq bigint NOT NULL,
  message integer NOT NULL,
  CONSTRAINT mqtt_passed_pkey PRIMARY KEY (group_key, batch_seq, message)
);

CREATE TABLE mqtt_received (
  session_key bigint NOT NULL,
  packet_id integer NOT NULL,
  CONSTRAINT mqtt_received_pkey PRIMARY KEY (session_key, packet_id)
);

CREATE TABLE mqtt_retained (
  channel_key bigint NOT NULL,
  subtopic text NOT NULL,
  publisher_id text NOT NULL,
  qos smallint NOT NULL,
  envelope text,
  payload bytea NOT NULL,
  stored_at timestamp with time zone NOT NULL DEFAULT now(),
  expires_at timestamp with time zone,
  CONSTRAINT mqtt_retained_pkey PRIMARY KEY (channel_key, subtopic)
);
CREATE INDEX mqtt_retained_expires_at_idx ON mqtt_retained USING btree (expires_at) WHERE (expires_at IS NOT NULL);

CREATE TABLE mqtt_sessions (
  key bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  client_key bigint NOT NULL,
  client_identifier text NOT NULL,
  epoch bigint NOT NULL DEFAULT 1,
  node text NOT NULL,
  is_connected boolean NOT NULL DEFAULT true,
  version smallint NOT NULL,
  address text NOT NULL,
  expiry_seconds bigint NOT NULL,
  connected_at timestamp with time zone NOT NULL DEFAULT now(),
  disconnected_at timestamp with time zone,
  ends_at timestamp with time zone,
  will jsonb,
  will_payload bytea,
  will_due_at timestamp with time zone,
  skipped_messages bigint NOT NULL DEFAULT 0,
  CONSTRAINT mqtt_sessions_pkey PRIMARY KEY (key),
  CONSTRAINT mqtt_sessions_client_identifier_key UNIQUE (client_key, client_identifier)
);
CREATE INDEX mqtt_sessions_ends_at_idx ON mqtt_sessions USING btree (ends_at) WHERE (ends_at IS NOT NULL);
CREATE INDEX mqtt_sessions_node_idx ON mqtt_sessions USING btree (node) WHERE is_connected;
CREATE INDEX mqtt_sessions_will_due_at_idx ON mqtt_sessions USING btree (will_due_at) WHERE (will_due_at IS NOT NULL);

CREATE TABLE mqtt_subscriptions (
  session_key bigint NOT NULL,
  filter text NOT NULL,
  client_key bigint NOT NULL,
  channel_key bigint NOT NULL,
  options smallint NOT NULL,
  identifier integer,
  "position" text,
  group_key bigint,
  CONSTRAINT mqtt_subscriptions_pkey PRIMARY KEY (session_key, filter)
);
CREATE INDEX mqtt_subscriptions_connection_idx ON mqtt_subscriptions USING btree (client_key, channel_key);
CREATE INDEX mqtt_subscriptions_group_key_idx ON mqtt_subscriptions USING btree (group_key) WHERE (group_key IS NOT NULL);

CREATE TABLE mqtt_takeovers (
  node text NOT NULL,
  session_key bigint NOT NULL,
  epoch bigint NOT NULL,
  CONSTRAINT mqtt_takeovers_pkey PRIMARY KEY (node, session_key, epoch)
);

CREATE TABLE nodes (
  id text NOT NULL,
  kind text NOT NULL,
  version text NOT NULL,
  migration integer NOT NULL,
  started_at timestamp with time zone NOT NULL DEFAULT now(),
  seen_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT nodes_pkey PRIMARY KEY (id)
);

CREATE TABLE notification_deliveries (
  key bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  subscription_key bigint NOT NULL,
  payload jsonb NOT NULL,
  attempts integer NOT NULL DEFAULT 0,
  next_attempt_at timestamp with time zone DEFAULT now(),
  last_error text,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  user_key bigint,
  CONSTRAINT notification_deliveries_pkey PRIMARY KEY (key)
);
CREATE INDEX notification_deliveries_due ON notification_deliveries USING btree (next_attempt_at) WHERE (next_attempt_at IS NOT NULL);
CREATE INDEX notification_deliveries_owner ON notification_deliveries USING btree (user_key, next_attempt_at, key) WHERE (next_attempt_at IS NOT NULL);
CREATE INDEX notification_deliveries_subscription ON notification_deliveries USING btree (subscription_key, key);

CREATE TABLE notification_subscriptions (
  key bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  id uuid NOT NULL,
  user_key bigint NOT NULL,
  channel_key bigint NOT NULL,
  topic text NOT NULL,
  filter text NOT NULL,
  contact text NOT NULL,
  missed bigint NOT NULL DEFAULT 0,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  confirmed_at timestamp with time zone,
  confirmation_sent_at timestamp with time zone,
  CONSTRAINT notification_subscriptions_pkey PRIMARY KEY (key),
  CONSTRAINT notification_subscriptions_contact_key UNIQUE (user_key, topic, contact),
  CONSTRAINT notification_subscriptions_id_key UNIQUE (id)
);
CREATE INDEX notification_subscriptions_channel ON notification_subscriptions USING btree (channel_key);

CREATE TABLE pat_scopes (
  key bigint NOT NULL DEFAULT nextval('entity_keys'::regclass),
  id uuid NOT NULL,
  pat_key bigint NOT NULL,
  entity_type text NOT NULL,
  operation text NOT NULL,
  domain_key bigint,
  entity_id uuid,
  entity_key bigint,
  CONSTRAINT pat_scopes_pkey PRIMARY KEY (key),
  CONSTRAINT pat_scopes_id_key UNIQUE (id),
  CONSTRAINT pat_scopes_scope_key UNIQUE NULLS NOT DISTINCT (pat_key, entity_type, operation, domain_key, entity_id, entity_key)
);
CREATE INDEX pat_scopes_domain ON pat_scopes USING btree (domain_key);

CREATE TABLE pats (
  key bigint NOT NULL DEFAULT nextval('entity_keys'::regclass),
  id uuid NOT NULL,
  user_key bigint NOT NULL,
  name text NOT NULL,
  description text NOT NULL DEFAULT ''::text,
  secret_hash bytea NOT NULL,
  issued_at timestamp with time zone NOT NULL DEFAULT now(),
  expires_at timestamp with time zone NOT NULL,
  updated_at timestamp with time zone,
  last_used_at timestamp with time zone,
  revoked_at timestamp with time zone,
  CONSTRAINT pats_pkey PRIMARY KEY (key),
  CONSTRAINT pats_id_key UNIQUE (id)
);
CREATE INDEX pats_user ON pats USING btree (user_key, issued_at DESC, id);

CREATE TABLE payloads (
  channel_key bigint NOT NULL,
  publisher_key bigint,
  "time" timestamp with time zone NOT NULL,
  arrived_at timestamp with time zone NOT NULL DEFAULT now(),
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
  CONSTRAINT payloads_kind_check CHECK (((document IS NULL) <> (body IS NULL)))
) PARTITION BY LIST (retention_days);
CREATE INDEX payloads_batch_seq_idx ON payloads USING brin (batch_seq) WITH (pages_per_range='32', autosummarize='on');
CREATE INDEX payloads_channel_key_format_time_idx ON payloads USING btree (channel_key, format, "time");

CREATE TABLE presence_nodes (
  node text NOT NULL,
  seen_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT presence_nodes_pkey PRIMARY KEY (node)
);

CREATE TABLE records (
  channel_key bigint NOT NULL,
  min_time timestamp with time zone NOT NULL,
  max_time timestamp with time zone NOT NULL,
  arrived_at timestamp with time zone NOT NULL DEFAULT now(),
  batch_seq bigint NOT NULL,
  message integer NOT NULL,
  run integer NOT NULL,
  retention_days smallint NOT NULL,
  protocol smallint NOT NULL,
  series_keys bigint[] NOT NULL,
  times timestamp with time zone[] NOT NULL,
  "values" double precision[],
  sums double precision[],
  update_times double precision[],
  bool_values boolean[],
  string_values text[],
  data_values bytea[]
) PARTITION BY LIST (retention_days);
CREATE INDEX records_batch_seq_idx ON records USING brin (batch_seq) WITH (pages_per_range='32', autosummarize='on');
CREATE INDEX records_channel_key_max_time_idx ON records USING btree (channel_key, max_time);
CREATE INDEX records_channel_key_min_time_idx ON records USING btree (channel_key, min_time);

CREATE TABLE roles (
  key bigint NOT NULL DEFAULT nextval('entity_keys'::regclass),
  id text NOT NULL,
  entity_type text NOT NULL,
  domain_key bigint NOT NULL,
  entity_key bigint NOT NULL,
  name text NOT NULL,
  actions text[] NOT NULL DEFAULT '{}'::text[],
  created_by uuid,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  updated_by uuid,
  updated_at timestamp with time zone,
  CONSTRAINT roles_pkey PRIMARY KEY (key),
  CONSTRAINT roles_entity_name_key UNIQUE (entity_key, name),
  CONSTRAINT roles_entity_type_check CHECK ((entity_type = ANY (ARRAY['domain'::text, 'group'::text, 'channel'::text, 'client'::text]))),
  CONSTRAINT roles_id_key UNIQUE (id),
  CONSTRAINT roles_name_check CHECK ((name <> 'admin'::text))
);
CREATE INDEX roles_domain ON roles USING btree (domain_key);

CREATE TABLE rollups (
  channel_key bigint NOT NULL,
  series_key bigint NOT NULL,
  bucket timestamp with time zone NOT NULL,
  arrived_on timestamp with time zone NOT NULL,
  retention_days smallint NOT NULL,
  protocol smallint NOT NULL,
  records bigint NOT NULL,
  value_count bigint NOT NULL,
  min_value double precision,
  max_value double precision,
  value_sum numeric,
  CONSTRAINT rollups_pkey PRIMARY KEY (channel_key, series_key, bucket, retention_days, arrived_on)
) PARTITION BY LIST (retention_days);

CREATE TABLE run_attempts (
  run_key bigint NOT NULL,
  fence bigint NOT NULL,
  attempt integer NOT NULL,
  worker_key bigint,
  assigned_at timestamp with time zone,
  running_at timestamp with time zone,
  ended_at timestamp with time zone NOT NULL DEFAULT now(),
  reason text NOT NULL,
  error text,
  CONSTRAINT run_attempts_pkey PRIMARY KEY (run_key, fence)
);

CREATE TABLE run_logs (
  run_key bigint NOT NULL,
  stream smallint NOT NULL,
  byte_offset bigint NOT NULL,
  data bytea NOT NULL,
  truncated boolean NOT NULL,
  CONSTRAINT run_logs_pkey PRIMARY KEY (run_key, stream, byte_offset),
  CONSTRAINT run_logs_stream_check CHECK ((stream = ANY (ARRAY[1, 2])))
);

CREATE TABLE run_needs (
  hash text NOT NULL,
  definition jsonb NOT NULL,
  CONSTRAINT run_needs_pkey PRIMARY KEY (hash)
);

CREATE TABLE run_start_keys (
  task_key bigint NOT NULL,
  user_key bigint NOT NULL,
  idempotency_key text NOT NULL,
  body_digest text NOT NULL,
  run_id uuid NOT NULL,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT run_start_keys_pkey PRIMARY KEY (task_key, user_key, idempotency_key)
);
CREATE INDEX run_start_keys_age ON run_start_keys USING btree (created_at);

CREATE TABLE runs (
  key bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  id uuid NOT NULL,
  task_key bigint NOT NULL,
  drives_task boolean NOT NULL,
  state smallint NOT NULL,
  spec json NOT NULL,
  module_digest text NOT NULL,
  needs text NOT NULL,
  priority smallint NOT NULL,
  attempt integer NOT NULL DEFAULT 1,
  fence bigint,
  worker_key bigint,
  queue_seq bigint,
  next_check_at timestamp with time zone,
  checks smallint NOT NULL DEFAULT 0,
  cancel_requested_at timestamp with time zone,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  assigned_at timestamp with time zone,
  running_at timestamp with time zone,
  finished_at timestamp with time zone,
  duration_ms double precision,
  prepare_ms double precision,
  reason text,
  error text,
  results json,
  result_digest text,
  result_bytes bigint,
  output_truncated boolean NOT NULL DEFAULT false,
  parent_id uuid,
  is_group boolean NOT NULL DEFAULT false,
  CONSTRAINT runs_pkey PRIMARY KEY (key),
  CONSTRAINT runs_assigned_check CHECK (((worker_key IS NULL) OR (fence IS NOT NULL))),
  CONSTRAINT runs_deadline_check CHECK (((state = ANY (ARRAY[1, 2, 7])) = (next_check_at IS NOT NULL))),
  CONSTRAINT runs_id_key UNIQUE (id),
  CONSTRAINT runs_queue_check CHECK (((queue_seq IS NULL) OR ((worker_key IS NULL) AND (state = 1)))),
  CONSTRAINT runs_state_check CHECK (((state >= 1) AND (state <= 7)))
) WITH (fillfactor=80);
CREATE INDEX runs_cancelled ON runs USING btree (worker_key) WHERE ((cancel_requested_at IS NOT NULL) AND (next_check_at IS NOT NULL));
CREATE INDEX runs_due ON runs USING btree (next_check_at) WHERE (next_check_at IS NOT NULL);
CREATE INDEX runs_held ON runs USING btree (worker_key) WHERE (next_check_at IS NOT NULL);
CREATE INDEX runs_parent ON runs USING btree (parent_id) WHERE (parent_id IS NOT NULL);
CREATE INDEX runs_queue ON runs USING btree (needs, priority DESC, queue_seq) WHERE (queue_seq IS NOT NULL);
CREATE INDEX runs_staged ON runs USING btree (result_digest) WHERE (result_digest IS NOT NULL);
CREATE INDEX runs_task ON runs USING btree (task_key, key);

CREATE TABLE sealed_secrets (
  name text NOT NULL,
  sealed bytea NOT NULL,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT sealed_secrets_pkey PRIMARY KEY (name)
);

CREATE TABLE series (
  key bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  domain_key bigint NOT NULL,
  channel_key bigint NOT NULL,
  publisher_key bigint,
  publisher_id text NOT NULL,
  subtopic text NOT NULL,
  name text NOT NULL,
  unit text NOT NULL,
  digest bytea NOT NULL,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT series_pkey PRIMARY KEY (key),
  CONSTRAINT series_channel_key_digest_key UNIQUE (channel_key, digest)
);
CREATE INDEX series_channel_key_name_idx ON series USING btree (channel_key, name);

CREATE TABLE series_counts (
  domain_key bigint NOT NULL,
  channel_key bigint NOT NULL,
  series integer NOT NULL DEFAULT 0,
  CONSTRAINT series_counts_pkey PRIMARY KEY (domain_key, channel_key)
);

CREATE TABLE sessions (
  id uuid NOT NULL,
  user_key bigint NOT NULL,
  domain_key bigint,
  generation integer NOT NULL DEFAULT 0,
  address text,
  user_agent text,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  last_used_at timestamp with time zone NOT NULL DEFAULT now(),
  expires_at timestamp with time zone NOT NULL,
  revoked_at timestamp with time zone,
  CONSTRAINT sessions_pkey PRIMARY KEY (id)
);
CREATE INDEX sessions_expiry ON sessions USING btree (expires_at);
CREATE INDEX sessions_user ON sessions USING btree (user_key, expires_at);
CREATE INDEX sessions_user_order ON sessions USING btree (user_key, created_at DESC, id);

CREATE TABLE signing_keys (
  kid text NOT NULL,
  public_key bytea NOT NULL,
  sealed_private_key bytea NOT NULL,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  retired_at timestamp with time zone,
  max_token_seconds bigint NOT NULL DEFAULT 86400,
  CONSTRAINT signing_keys_pkey PRIMARY KEY (kid),
  CONSTRAINT signing_keys_max_token_check CHECK ((max_token_seconds > 0))
);

CREATE TABLE staged_results (
  digest text NOT NULL,
  byte_offset bigint NOT NULL,
  data bytea NOT NULL,
  staged_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT staged_results_pkey PRIMARY KEY (digest, byte_offset)
);

CREATE TABLE tallies (
  folder uuid NOT NULL,
  channel_key bigint NOT NULL,
  is_total boolean NOT NULL,
  bucket timestamp with time zone NOT NULL,
  retention_days smallint NOT NULL,
  arrived_on timestamp with time zone NOT NULL,
  series_keys bigint[] STORAGE PLAIN NOT NULL,
  protocols smallint[] STORAGE PLAIN NOT NULL,
  records integer[] STORAGE PLAIN NOT NULL,
  value_counts integer[] STORAGE PLAIN NOT NULL,
  min_values double precision[] STORAGE PLAIN NOT NULL,
  max_values double precision[] STORAGE PLAIN NOT NULL,
  millionths bigint[] STORAGE PLAIN NOT NULL,
  value_sums numeric[],
  newest_micros bigint[] STORAGE PLAIN,
  newest_arrivals bigint[] STORAGE PLAIN,
  newest_batch_seqs bigint[] STORAGE PLAIN,
  newest_messages integer[] STORAGE PLAIN,
  newest_runs integer[] STORAGE PLAIN,
  newest_places integer[] STORAGE PLAIN,
  newest_protocols smallint[] STORAGE PLAIN,
  newest_values double precision[] STORAGE PLAIN,
  newest_sums double precision[] STORAGE PLAIN,
  newest_update_times double precision[] STORAGE PLAIN,
  newest_bools boolean[] STORAGE PLAIN,
  newest_strings text[],
  newest_data bytea[]
) WITH (toast_tuple_target=8160);
CREATE INDEX tallies_channel_idx ON tallies USING btree (channel_key, is_total);
CREATE INDEX tallies_folder_idx ON tallies USING btree (folder);

CREATE TABLE task_events (
  seq bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  occurred_at timestamp with time zone NOT NULL DEFAULT now(),
  events json NOT NULL,
  CONSTRAINT task_events_pkey PRIMARY KEY (seq)
);
CREATE INDEX task_events_position ON task_events USING btree (xid, seq);

CREATE TABLE task_messages (
  key bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  task_key bigint NOT NULL,
  origin text NOT NULL,
  message json NOT NULL,
  due_at timestamp with time zone NOT NULL DEFAULT now(),
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT task_messages_pkey PRIMARY KEY (key),
  CONSTRAINT task_messages_origin_key UNIQUE (task_key, origin)
);
CREATE INDEX task_messages_due ON task_messages USING btree (due_at, key);

CREATE TABLE task_publications (
  key bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  domain_key bigint NOT NULL,
  user_key bigint NOT NULL,
  channel_id uuid NOT NULL,
  subtopic text NOT NULL,
  payload text NOT NULL,
  task_key bigint NOT NULL,
  run_id uuid NOT NULL,
  fence bigint NOT NULL,
  call_id bigint NOT NULL,
  tries smallint NOT NULL DEFAULT 0,
  due_at timestamp with time zone NOT NULL DEFAULT now(),
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT task_publications_pkey PRIMARY KEY (key),
  CONSTRAINT task_publications_call_key UNIQUE (run_id, fence, call_id)
);
CREATE INDEX task_publications_domain ON task_publications USING btree (domain_key);
CREATE INDEX task_publications_due ON task_publications USING btree (due_at, key);
CREATE INDEX task_publications_user ON task_publications USING btree (user_key);

CREATE TABLE task_replays (
  key bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  id uuid NOT NULL,
  task_key bigint NOT NULL,
  user_key bigint NOT NULL,
  channel_id uuid NOT NULL,
  from_time double precision NOT NULL,
  to_time double precision NOT NULL,
  next_offset bigint NOT NULL DEFAULT 0,
  due_at timestamp with time zone NOT NULL DEFAULT now(),
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT task_replays_pkey PRIMARY KEY (key),
  CONSTRAINT task_replays_id_key UNIQUE (id)
);
CREATE INDEX task_replays_due ON task_replays USING btree (due_at, key);
CREATE INDEX task_replays_task ON task_replays USING btree (task_key);
CREATE INDEX task_replays_user ON task_replays USING btree (user_key);

CREATE TABLE task_triggers (
  task_key bigint NOT NULL,
  channel_key bigint NOT NULL,
  subtopic text NOT NULL,
  name text,
  comparator text,
  value double precision,
  debounce_ms bigint,
  rate_count integer,
  rate_ms bigint,
  window_at timestamp with time zone,
  window_count integer NOT NULL DEFAULT 0,
  matched bigint NOT NULL DEFAULT 0,
  dropped bigint NOT NULL DEFAULT 0,
  dropped_reason text,
  last_match_at timestamp with time zone,
  CONSTRAINT task_triggers_pkey PRIMARY KEY (task_key),
  CONSTRAINT task_triggers_comparator_check CHECK ((comparator = ANY (ARRAY['eq'::text, 'lt'::text, 'le'::text, 'gt'::text, 'ge'::text]))),
  CONSTRAINT task_triggers_rate_check CHECK (((rate_count IS NULL) = (rate_ms IS NULL))),
  CONSTRAINT task_triggers_when_check CHECK (((comparator IS NULL) = (value IS NULL)))
);
CREATE INDEX task_triggers_channel ON task_triggers USING btree (channel_key);

CREATE TABLE tasks (
  key bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  id uuid NOT NULL,
  domain_key bigint,
  domain_id uuid,
  user_key bigint,
  name text NOT NULL,
  state smallint NOT NULL DEFAULT 0,
  inputs json NOT NULL,
  cli_args json,
  env json NOT NULL,
  image_url text,
  module_key bigint,
  function text,
  labels jsonb NOT NULL,
  worker_id uuid,
  priority smallint NOT NULL,
  timeout_ms bigint NOT NULL,
  memory_limit_bytes bigint NOT NULL,
  max_attempts smallint,
  backoff_ms bigint NOT NULL,
  on_lost text NOT NULL,
  metadata jsonb NOT NULL,
  run_key bigint,
  start_time timestamp with time zone,
  finish_time timestamp with time zone,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  updated_at timestamp with time zone,
  broadcast boolean NOT NULL DEFAULT false,
  daemon boolean NOT NULL DEFAULT false,
  schedule text,
  timezone text NOT NULL DEFAULT 'UTC'::text,
  catch_up text NOT NULL DEFAULT 'none'::text,
  next_tick_at timestamp with time zone,
  trigger json,
  publish_result json,
  grants json NOT NULL DEFAULT '[]'::json,
  secrets bytea,
  secret_names text[] NOT NULL DEFAULT '{}'::text[],
  depends_on text[] NOT NULL DEFAULT '{}'::text[],
  run_if text NOT NULL DEFAULT 'success'::text,
  workflow_key bigint,
  max_output_bytes integer NOT NULL DEFAULT 1048576,
  CONSTRAINT tasks_pkey PRIMARY KEY (key),
  CONSTRAINT tasks_catch_up_check CHECK ((catch_up = ANY (ARRAY['none'::text, 'once'::text]))),
  CONSTRAINT tasks_id_key UNIQUE (id),
  CONSTRAINT tasks_max_output_bytes_check CHECK (((max_output_bytes >= 1024) AND (max_output_bytes <= 16777216))),
  CONSTRAINT tasks_on_lost_check CHECK ((on_lost = ANY (ARRAY['requeue'::text, 'fail'::text, 'wait'::text]))),
  CONSTRAINT tasks_priority_check CHECK (((priority >= 0) AND (priority <= 100))),
  CONSTRAINT tasks_run_check CHECK (((state <> ALL (ARRAY[1, 2, 7])) OR (run_key IS NOT NULL))),
  CONSTRAINT tasks_run_if_check CHECK ((run_if = ANY (ARRAY['success'::text, 'failure'::text, 'always'::text]))),
  CONSTRAINT tasks_source_check CHECK (((image_url IS NULL) OR (module_key IS NULL))),
  CONSTRAINT tasks_state_check CHECK (((state >= 0) AND (state <= 7))),
  CONSTRAINT tasks_tick_check CHECK (((next_tick_at IS NULL) OR (schedule IS NOT NULL)))
);
CREATE INDEX tasks_domain ON tasks USING btree (domain_key, key);
CREATE INDEX tasks_module ON tasks USING btree (module_key) WHERE (module_key IS NOT NULL);
CREATE INDEX tasks_tick ON tasks USING btree (next_tick_at) WHERE (next_tick_at IS NOT NULL);
CREATE INDEX tasks_user ON tasks USING btree (user_key) WHERE (user_key IS NOT NULL);
CREATE UNIQUE INDEX tasks_workflow_name ON tasks USING btree (workflow_key, name) WHERE (workflow_key IS NOT NULL);

CREATE TABLE user_unique_names (
  kind text NOT NULL,
  value text NOT NULL,
  user_key bigint NOT NULL,
  CONSTRAINT user_unique_names_pkey PRIMARY KEY (kind, value),
  CONSTRAINT user_unique_names_kind_check CHECK ((kind = ANY (ARRAY['first_name'::text, 'last_name'::text])))
);
CREATE INDEX user_unique_names_user ON user_unique_names USING btree (user_key);

CREATE TABLE users (
  key bigint NOT NULL DEFAULT nextval('entity_keys'::regclass),
  id uuid NOT NULL,
  first_name text,
  last_name text,
  name text,
  email text,
  username text,
  secret_hash text NOT NULL,
  tags text[] NOT NULL DEFAULT '{}'::text[],
  metadata jsonb NOT NULL DEFAULT '{}'::jsonb,
  profile_picture text,
  role text NOT NULL DEFAULT 'user'::text,
  status text NOT NULL DEFAULT 'enabled'::text,
  created_by uuid,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  updated_by uuid,
  updated_at timestamp with time zone,
  verified_at timestamp with time zone,
  deleted_at timestamp with time zone,
  CONSTRAINT users_pkey PRIMARY KEY (key),
  CONSTRAINT users_id_key UNIQUE (id),
  CONSTRAINT users_login_check CHECK (((email IS NOT NULL) OR (username IS NOT NULL))),
  CONSTRAINT users_role_check CHECK ((role = ANY (ARRAY['user'::text, 'admin'::text]))),
  CONSTRAINT users_status_check CHECK ((status = ANY (ARRAY['enabled'::text, 'disabled'::text, 'deleted'::text])))
);
CREATE INDEX users_created_by ON users USING btree (created_by);
CREATE INDEX users_deleted ON users USING btree (deleted_at) WHERE (status = 'deleted'::text);
CREATE UNIQUE INDEX users_email_key ON users USING btree (lower(email));
CREATE INDEX users_email_trgm ON users USING gin (email gin_trgm_ops);
CREATE INDEX users_first_name_trgm ON users USING gin (first_name gin_trgm_ops);
CREATE INDEX users_last_name_trgm ON users USING gin (last_name gin_trgm_ops);
CREATE INDEX users_name_trgm ON users USING gin (name gin_trgm_ops);
CREATE INDEX users_order ON users USING btree (status, COALESCE(updated_at, created_at), created_at, id);
CREATE UNIQUE INDEX users_username_key ON users USING btree (lower(username));
CREATE INDEX users_username_trgm ON users USING gin (username gin_trgm_ops);

CREATE TABLE worker_certificates (
  fingerprint text NOT NULL,
  worker_key bigint NOT NULL,
  issued_at timestamp with time zone NOT NULL DEFAULT now(),
  expires_at timestamp with time zone NOT NULL,
  CONSTRAINT worker_certificates_pkey PRIMARY KEY (fingerprint)
);
CREATE INDEX worker_certificates_worker ON worker_certificates USING btree (worker_key);

CREATE TABLE worker_tokens (
  key bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  token_hash bytea NOT NULL,
  domain_key bigint,
  domain_id uuid,
  expires_at timestamp with time zone,
  uses_left integer,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  id uuid,
  created_by uuid,
  CONSTRAINT worker_tokens_pkey PRIMARY KEY (key),
  CONSTRAINT worker_tokens_hash_key UNIQUE (token_hash),
  CONSTRAINT worker_tokens_id_key UNIQUE (id),
  CONSTRAINT worker_tokens_uses_check CHECK ((uses_left >= 0))
);
CREATE INDEX worker_tokens_domain ON worker_tokens USING btree (domain_key) WHERE (domain_key IS NOT NULL);

CREATE TABLE workers (
  key bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  id uuid NOT NULL,
  domain_key bigint,
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
  lease_until timestamp with time zone NOT NULL,
  last_alive_at timestamp with time zone NOT NULL,
  alive_history timestamp with time zone[] NOT NULL,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  revoked_at timestamp with time zone,
  isolation text NOT NULL DEFAULT ''::text,
  platform_only boolean NOT NULL DEFAULT false,
  CONSTRAINT workers_pkey PRIMARY KEY (key),
  CONSTRAINT workers_id_key UNIQUE (id)
);
CREATE INDEX workers_domain ON workers USING btree (domain_key) WHERE (domain_key IS NOT NULL);
CREATE INDEX workers_lease ON workers USING btree (lease_until) WHERE (manager_id IS NOT NULL);

CREATE TABLE workflow_runs (
  key bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  id uuid NOT NULL,
  workflow_key bigint NOT NULL,
  state smallint NOT NULL,
  next_check_at timestamp with time zone,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  finished_at timestamp with time zone,
  CONSTRAINT workflow_runs_pkey PRIMARY KEY (key),
  CONSTRAINT workflow_runs_deadline_check CHECK (((state = 2) = (next_check_at IS NOT NULL))),
  CONSTRAINT workflow_runs_id_key UNIQUE (id),
  CONSTRAINT workflow_runs_state_check CHECK ((state = ANY (ARRAY[2, 3, 4, 6])))
);
CREATE INDEX workflow_runs_due ON workflow_runs USING btree (next_check_at) WHERE (next_check_at IS NOT NULL);
CREATE UNIQUE INDEX workflow_runs_open ON workflow_runs USING btree (workflow_key) WHERE (next_check_at IS NOT NULL);
CREATE INDEX workflow_runs_workflow ON workflow_runs USING btree (workflow_key, key);

CREATE TABLE workflow_steps (
  workflow_run_key bigint NOT NULL,
  task_key bigint NOT NULL,
  state smallint NOT NULL DEFAULT 0,
  run_id uuid NOT NULL,
  error text,
  CONSTRAINT workflow_steps_pkey PRIMARY KEY (workflow_run_key, task_key)
);
CREATE INDEX workflow_steps_task ON workflow_steps USING btree (task_key);

CREATE TABLE workflows (
  key bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  id uuid NOT NULL,
  domain_key bigint,
  domain_id uuid,
  name text NOT NULL,
  metadata jsonb NOT NULL,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT workflows_pkey PRIMARY KEY (key),
  CONSTRAINT workflows_id_key UNIQUE (id)
);
CREATE INDEX workflows_domain ON workflows USING btree (domain_key, key);

CREATE TABLE payloads_r0 PARTITION OF payloads FOR VALUES IN ('0') PARTITION BY RANGE (arrived_at);

CREATE TABLE payloads_r30 PARTITION OF payloads FOR VALUES IN ('30') PARTITION BY RANGE (arrived_at);

CREATE TABLE payloads_r365 PARTITION OF payloads FOR VALUES IN ('365') PARTITION BY RANGE (arrived_at);

CREATE TABLE payloads_r3650 PARTITION OF payloads FOR VALUES IN ('3650') PARTITION BY RANGE (arrived_at);

CREATE TABLE payloads_r7 PARTITION OF payloads FOR VALUES IN ('7') PARTITION BY RANGE (arrived_at);

CREATE TABLE payloads_r90 PARTITION OF payloads FOR VALUES IN ('90') PARTITION BY RANGE (arrived_at);

CREATE TABLE records_r0 PARTITION OF records FOR VALUES IN ('0') PARTITION BY RANGE (arrived_at);

CREATE TABLE records_r30 PARTITION OF records FOR VALUES IN ('30') PARTITION BY RANGE (arrived_at);

CREATE TABLE records_r365 PARTITION OF records FOR VALUES IN ('365') PARTITION BY RANGE (arrived_at);

CREATE TABLE records_r3650 PARTITION OF records FOR VALUES IN ('3650') PARTITION BY RANGE (arrived_at);

CREATE TABLE records_r7 PARTITION OF records FOR VALUES IN ('7') PARTITION BY RANGE (arrived_at);

CREATE TABLE records_r90 PARTITION OF records FOR VALUES IN ('90') PARTITION BY RANGE (arrived_at);

CREATE TABLE rollups_r0 PARTITION OF rollups FOR VALUES IN ('0') PARTITION BY RANGE (arrived_on);

CREATE TABLE rollups_r30 PARTITION OF rollups FOR VALUES IN ('30') PARTITION BY RANGE (arrived_on);

CREATE TABLE rollups_r365 PARTITION OF rollups FOR VALUES IN ('365') PARTITION BY RANGE (arrived_on);

CREATE TABLE rollups_r3650 PARTITION OF rollups FOR VALUES IN ('3650') PARTITION BY RANGE (arrived_on);

CREATE TABLE rollups_r7 PARTITION OF rollups FOR VALUES IN ('7') PARTITION BY RANGE (arrived_on);

CREATE TABLE rollups_r90 PARTITION OF rollups FOR VALUES IN ('90') PARTITION BY RANGE (arrived_on);

ALTER TABLE api_keys ADD CONSTRAINT api_keys_domain_fkey FOREIGN KEY (domain_key) REFERENCES domains(key) ON DELETE CASCADE;
ALTER TABLE api_keys ADD CONSTRAINT api_keys_user_fkey FOREIGN KEY (user_key) REFERENCES users(key) ON DELETE CASCADE;
ALTER TABLE bootstrap_bindings ADD CONSTRAINT bootstrap_bindings_channel_fkey FOREIGN KEY (channel_key) REFERENCES channels(key) ON DELETE CASCADE;
ALTER TABLE bootstrap_bindings ADD CONSTRAINT bootstrap_bindings_client_fkey FOREIGN KEY (client_key) REFERENCES clients(key) ON DELETE CASCADE;
ALTER TABLE bootstrap_bindings ADD CONSTRAINT bootstrap_bindings_config_fkey FOREIGN KEY (config_key) REFERENCES bootstrap_configs(client_key) ON DELETE CASCADE;
ALTER TABLE bootstrap_channels ADD CONSTRAINT bootstrap_channels_channel_fkey FOREIGN KEY (channel_key) REFERENCES channels(key) ON DELETE CASCADE;
ALTER TABLE bootstrap_channels ADD CONSTRAINT bootstrap_channels_config_fkey FOREIGN KEY (client_key) REFERENCES bootstrap_configs(client_key) ON DELETE CASCADE;
ALTER TABLE bootstrap_configs ADD CONSTRAINT bootstrap_configs_client_fkey FOREIGN KEY (client_key) REFERENCES clients(key) ON DELETE CASCADE;
ALTER TABLE bootstrap_configs ADD CONSTRAINT bootstrap_configs_domain_fkey FOREIGN KEY (domain_key) REFERENCES domains(key) ON DELETE CASCADE;
ALTER TABLE bootstrap_configs ADD CONSTRAINT bootstrap_configs_profile_fkey FOREIGN KEY (profile_key) REFERENCES bootstrap_profiles(key) ON DELETE SET NULL;
ALTER TABLE bootstrap_profiles ADD CONSTRAINT bootstrap_profiles_domain_fkey FOREIGN KEY (domain_key) REFERENCES domains(key) ON DELETE CASCADE;
ALTER TABLE channels ADD CONSTRAINT channels_domain_fkey FOREIGN KEY (domain_key) REFERENCES domains(key) ON DELETE CASCADE;
ALTER TABLE channels ADD CONSTRAINT channels_parent_group_fkey FOREIGN KEY (parent_group_key) REFERENCES groups(key) ON DELETE SET NULL;
ALTER TABLE client_presence ADD CONSTRAINT client_presence_client_key_fkey FOREIGN KEY (client_key) REFERENCES clients(key) ON DELETE CASCADE;
ALTER TABLE client_presence ADD CONSTRAINT client_presence_node_fkey FOREIGN KEY (node) REFERENCES presence_nodes(node) ON DELETE CASCADE;
ALTER TABLE client_telemetry ADD CONSTRAINT client_telemetry_client_key_fkey FOREIGN KEY (client_key) REFERENCES clients(key) ON DELETE CASCADE;
ALTER TABLE clients ADD CONSTRAINT clients_domain_fkey FOREIGN KEY (domain_key) REFERENCES domains(key) ON DELETE CASCADE;
ALTER TABLE clients ADD CONSTRAINT clients_parent_group_fkey FOREIGN KEY (parent_group_key) REFERENCES groups(key) ON DELETE SET NULL;
ALTER TABLE connections ADD CONSTRAINT connections_channel_fkey FOREIGN KEY (channel_key) REFERENCES channels(key) ON DELETE CASCADE;
ALTER TABLE connections ADD CONSTRAINT connections_client_fkey FOREIGN KEY (client_key) REFERENCES clients(key) ON DELETE CASCADE;
ALTER TABLE domain_usage ADD CONSTRAINT domain_usage_domain_key_fkey FOREIGN KEY (domain_key) REFERENCES domains(key) ON DELETE CASCADE;
ALTER TABLE grants ADD CONSTRAINT grants_domain_fkey FOREIGN KEY (domain_key) REFERENCES domains(key) ON DELETE CASCADE;
ALTER TABLE grants ADD CONSTRAINT grants_user_fkey FOREIGN KEY (user_key) REFERENCES users(key) ON DELETE CASCADE;
ALTER TABLE group_closure ADD CONSTRAINT group_closure_ancestor_fkey FOREIGN KEY (ancestor_key) REFERENCES groups(key) ON DELETE CASCADE;
ALTER TABLE group_closure ADD CONSTRAINT group_closure_descendant_fkey FOREIGN KEY (descendant_key) REFERENCES groups(key) ON DELETE CASCADE;
ALTER TABLE groups ADD CONSTRAINT groups_domain_fkey FOREIGN KEY (domain_key) REFERENCES domains(key) ON DELETE CASCADE;
ALTER TABLE groups ADD CONSTRAINT groups_parent_fkey FOREIGN KEY (parent_key) REFERENCES groups(key);
ALTER TABLE invitations ADD CONSTRAINT invitations_domain_fkey FOREIGN KEY (domain_key) REFERENCES domains(key) ON DELETE CASCADE;
ALTER TABLE invitations ADD CONSTRAINT invitations_user_fkey FOREIGN KEY (user_key) REFERENCES users(key) ON DELETE CASCADE;
ALTER TABLE known_addresses ADD CONSTRAINT known_addresses_user_fkey FOREIGN KEY (user_key) REFERENCES users(key) ON DELETE CASCADE;
ALTER TABLE mailed_tokens ADD CONSTRAINT mailed_tokens_user_fkey FOREIGN KEY (user_key) REFERENCES users(key) ON DELETE CASCADE;
ALTER TABLE module_chunks ADD CONSTRAINT module_chunks_module_fkey FOREIGN KEY (module_key) REFERENCES modules(key) ON DELETE CASCADE;
ALTER TABLE module_policies ADD CONSTRAINT module_policies_domain_fkey FOREIGN KEY (domain_key) REFERENCES domains(key) ON DELETE CASCADE;
ALTER TABLE module_uses ADD CONSTRAINT module_uses_domain_fkey FOREIGN KEY (domain_key) REFERENCES domains(key) ON DELETE CASCADE;
ALTER TABLE mqtt_groups ADD CONSTRAINT mqtt_groups_channel_key_fkey FOREIGN KEY (channel_key) REFERENCES channels(key) ON DELETE CASCADE;
ALTER TABLE mqtt_outbound ADD CONSTRAINT mqtt_outbound_session_key_fkey FOREIGN KEY (session_key) REFERENCES mqtt_sessions(key) ON DELETE CASCADE;
ALTER TABLE mqtt_passed ADD CONSTRAINT mqtt_passed_group_key_fkey FOREIGN KEY (group_key) REFERENCES mqtt_groups(key) ON DELETE CASCADE;
ALTER TABLE mqtt_received ADD CONSTRAINT mqtt_received_session_key_fkey FOREIGN KEY (session_key) REFERENCES mqtt_sessions(key) ON DELETE CASCADE;
ALTER TABLE mqtt_retained ADD CONSTRAINT mqtt_retained_channel_key_fkey FOREIGN KEY (channel_key) REFERENCES channels(key) ON DELETE CASCADE;
ALTER TABLE mqtt_sessions ADD CONSTRAINT mqtt_sessions_client_key_fkey FOREIGN KEY (client_key) REFERENCES clients(key) ON DELETE CASCADE;
ALTER TABLE mqtt_subscriptions ADD CONSTRAINT mqtt_subscriptions_connection_fkey FOREIGN KEY (client_key, channel_key) REFERENCES connections(client_key, channel_key) ON DELETE CASCADE;
ALTER TABLE mqtt_subscriptions ADD CONSTRAINT mqtt_subscriptions_group_key_fkey FOREIGN KEY (group_key) REFERENCES mqtt_groups(key);
ALTER TABLE mqtt_subscriptions ADD CONSTRAINT mqtt_subscriptions_session_key_fkey FOREIGN KEY (session_key) REFERENCES mqtt_sessions(key) ON DELETE CASCADE;
ALTER TABLE notification_deliveries ADD CONSTRAINT notification_deliveries_subscription_fkey FOREIGN KEY (subscription_key) REFERENCES notification_subscriptions(key) ON DELETE CASCADE;
ALTER TABLE notification_subscriptions ADD CONSTRAINT notification_subscriptions_channel_fkey FOREIGN KEY (channel_key) REFERENCES channels(key) ON DELETE CASCADE;
ALTER TABLE notification_subscriptions ADD CONSTRAINT notification_subscriptions_user_fkey FOREIGN KEY (user_key) REFERENCES users(key) ON DELETE CASCADE;
ALTER TABLE pat_scopes ADD CONSTRAINT pat_scopes_domain_fkey FOREIGN KEY (domain_key) REFERENCES domains(key) ON DELETE CASCADE;
ALTER TABLE pat_scopes ADD CONSTRAINT pat_scopes_pat_fkey FOREIGN KEY (pat_key) REFERENCES pats(key) ON DELETE CASCADE;
ALTER TABLE pats ADD CONSTRAINT pats_user_fkey FOREIGN KEY (user_key) REFERENCES users(key) ON DELETE CASCADE;
ALTER TABLE roles ADD CONSTRAINT roles_domain_fkey FOREIGN KEY (domain_key) REFERENCES domains(key) ON DELETE CASCADE;
ALTER TABLE run_attempts ADD CONSTRAINT run_attempts_run_fkey FOREIGN KEY (run_key) REFERENCES runs(key) ON DELETE CASCADE;
ALTER TABLE run_logs ADD CONSTRAINT run_logs_run_fkey FOREIGN KEY (run_key) REFERENCES runs(key) ON DELETE CASCADE;
ALTER TABLE run_start_keys ADD CONSTRAINT run_start_keys_task_fkey FOREIGN KEY (task_key) REFERENCES tasks(key) ON DELETE CASCADE;
ALTER TABLE runs ADD CONSTRAINT runs_task_fkey FOREIGN KEY (task_key) REFERENCES tasks(key) ON DELETE CASCADE;
ALTER TABLE sessions ADD CONSTRAINT sessions_user_fkey FOREIGN KEY (user_key) REFERENCES users(key) ON DELETE CASCADE;
ALTER TABLE task_messages ADD CONSTRAINT task_messages_task_fkey FOREIGN KEY (task_key) REFERENCES tasks(key) ON DELETE CASCADE;
ALTER TABLE task_publications ADD CONSTRAINT task_publications_domain_fkey FOREIGN KEY (domain_key) REFERENCES domains(key) ON DELETE CASCADE;
ALTER TABLE task_publications ADD CONSTRAINT task_publications_user_fkey FOREIGN KEY (user_key) REFERENCES users(key) ON DELETE CASCADE;
ALTER TABLE task_replays ADD CONSTRAINT task_replays_task_fkey FOREIGN KEY (task_key) REFERENCES tasks(key) ON DELETE CASCADE;
ALTER TABLE task_replays ADD CONSTRAINT task_replays_user_fkey FOREIGN KEY (user_key) REFERENCES users(key) ON DELETE CASCADE;
ALTER TABLE task_triggers ADD CONSTRAINT task_triggers_channel_fkey FOREIGN KEY (channel_key) REFERENCES channels(key) ON DELETE CASCADE;
ALTER TABLE task_triggers ADD CONSTRAINT task_triggers_task_fkey FOREIGN KEY (task_key) REFERENCES tasks(key) ON DELETE CASCADE;
ALTER TABLE tasks ADD CONSTRAINT tasks_domain_fkey FOREIGN KEY (domain_key) REFERENCES domains(key) ON DELETE CASCADE;
ALTER TABLE tasks ADD CONSTRAINT tasks_module_fkey FOREIGN KEY (module_key) REFERENCES modules(key);
ALTER TABLE tasks ADD CONSTRAINT tasks_user_fkey FOREIGN KEY (user_key) REFERENCES users(key) ON DELETE SET NULL;
ALTER TABLE tasks ADD CONSTRAINT tasks_workflow_fkey FOREIGN KEY (workflow_key) REFERENCES workflows(key) ON DELETE CASCADE;
ALTER TABLE user_unique_names ADD CONSTRAINT user_unique_names_user_fkey FOREIGN KEY (user_key) REFERENCES users(key) ON DELETE CASCADE;
ALTER TABLE worker_certificates ADD CONSTRAINT worker_certificates_worker_fkey FOREIGN KEY (worker_key) REFERENCES workers(key) ON DELETE CASCADE;
ALTER TABLE worker_tokens ADD CONSTRAINT worker_tokens_domain_fkey FOREIGN KEY (domain_key) REFERENCES domains(key) ON DELETE CASCADE;
ALTER TABLE workers ADD CONSTRAINT workers_domain_fkey FOREIGN KEY (domain_key) REFERENCES domains(key) ON DELETE CASCADE;
ALTER TABLE workflow_runs ADD CONSTRAINT workflow_runs_workflow_fkey FOREIGN KEY (workflow_key) REFERENCES workflows(key) ON DELETE CASCADE;
ALTER TABLE workflow_steps ADD CONSTRAINT workflow_steps_run_fkey FOREIGN KEY (workflow_run_key) REFERENCES workflow_runs(key) ON DELETE CASCADE;
ALTER TABLE workflow_steps ADD CONSTRAINT workflow_steps_task_fkey FOREIGN KEY (task_key) REFERENCES tasks(key) ON DELETE CASCADE;
ALTER TABLE workflows ADD CONSTRAINT workflows_domain_fkey FOREIGN KEY (domain_key) REFERENCES domains(key) ON DELETE CASCADE;

CREATE TRIGGER channels_counted_deleted AFTER DELETE ON channels REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION count_entities('channel');

CREATE TRIGGER channels_counted_inserted AFTER INSERT ON channels REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_entities('channel');

CREATE TRIGGER channels_counted_updated AFTER UPDATE ON channels REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_entities('channel');

CREATE TRIGGER channels_departed AFTER DELETE ON channels REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION journal_note_departed('channel');

CREATE TRIGGER certificates_end_with_client AFTER DELETE ON clients REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION certificates_end_with_client();

CREATE TRIGGER clients_counted_deleted AFTER DELETE ON clients REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION count_entities('client');

CREATE TRIGGER clients_counted_inserted AFTER INSERT ON clients REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_entities('client');

CREATE TRIGGER clients_counted_updated AFTER UPDATE ON clients REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_entities('client');

CREATE TRIGGER clients_departed AFTER DELETE ON clients REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION journal_note_departed('client');

CREATE TRIGGER domains_departed AFTER DELETE ON domains REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION journal_note_departed();

CREATE TRIGGER groups_counted_deleted AFTER DELETE ON groups REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION count_entities('group');

CREATE TRIGGER groups_counted_inserted AFTER INSERT ON groups REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_entities('group');

CREATE TRIGGER groups_counted_updated AFTER UPDATE ON groups REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_entities('group');

CREATE TRIGGER groups_departed AFTER DELETE ON groups REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION journal_note_departed();

CREATE TRIGGER journal_days_are_uncounted AFTER DELETE ON journal REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION journal_uncount_days();

CREATE TRIGGER journal_subjects_are_noted AFTER INSERT ON journal REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION journal_note_subjects();

CREATE TRIGGER notification_deliveries_have_an_owner BEFORE INSERT ON notification_deliveries FOR EACH ROW WHEN ((new.user_key IS NULL)) EXECUTE FUNCTION notification_deliveries_have_an_owner();

CREATE TRIGGER users_departed AFTER DELETE ON users REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION journal_note_departed();
