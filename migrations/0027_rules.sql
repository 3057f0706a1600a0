-- expand: rules over messages, where each domain's rules stand in the changelog, their states, and what they publish
CREATE TABLE rule_domains (
  domain_key bigint NOT NULL,
  version bigint NOT NULL DEFAULT 1,
  xid xid8 NOT NULL,
  seq bigint NOT NULL,
  message integer NOT NULL,
  behind_since timestamptz,
  node text NOT NULL DEFAULT '',
  leased_until timestamptz NOT NULL DEFAULT '-infinity',
  CONSTRAINT rule_domains_pkey PRIMARY KEY (domain_key),
  CONSTRAINT rule_domains_domain_fkey FOREIGN KEY (domain_key) REFERENCES domains(key) ON DELETE CASCADE
);
COMMENT ON TABLE rule_domains IS 'Where the rules of a domain stand in the changelog of messages: one place for all of them that are not behind.';
COMMENT ON COLUMN rule_domains.domain_key IS 'The domain.';
COMMENT ON COLUMN rule_domains.version IS 'Grows with each change of a rule of the domain: processes read the rules again.';
COMMENT ON COLUMN rule_domains.xid IS 'Transaction of the batch that the rules read on with.';
COMMENT ON COLUMN rule_domains.seq IS 'Number of that batch.';
COMMENT ON COLUMN rule_domains.message IS 'Number of the next message in that batch.';
COMMENT ON COLUMN rule_domains.behind_since IS 'Arrival of the message at the place, when it was left for the next step; NULL: none was.';
COMMENT ON COLUMN rule_domains.node IS 'The process that evaluates the rules of the domain, and has their windows in memory.';
COMMENT ON COLUMN rule_domains.leased_until IS 'Until when other processes leave the domain to it.';

CREATE TABLE rules (
  key bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  id uuid NOT NULL,
  domain_key bigint NOT NULL,
  name text NOT NULL,
  description text NOT NULL DEFAULT '',
  status text NOT NULL DEFAULT 'enabled',
  definition jsonb NOT NULL,
  user_key bigint NOT NULL,
  is_behind boolean NOT NULL,
  xid xid8 NOT NULL,
  seq bigint NOT NULL,
  message integer NOT NULL,
  paused_at timestamptz,
  paused_reason text,
  pause_kind text,
  checked_at timestamptz NOT NULL DEFAULT now(),
  error_at timestamptz,
  error_reason text,
  error_count bigint NOT NULL DEFAULT 0,
  seen bigint NOT NULL DEFAULT 0,
  matched bigint NOT NULL DEFAULT 0,
  unmatchable bigint NOT NULL DEFAULT 0,
  raised bigint NOT NULL DEFAULT 0,
  acted bigint NOT NULL DEFAULT 0,
  last_match_at timestamptz,
  created_by uuid NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_by uuid,
  updated_at timestamptz,
  CONSTRAINT rules_pkey PRIMARY KEY (key),
  CONSTRAINT rules_id_key UNIQUE (id),
  CONSTRAINT rules_name_key UNIQUE (domain_key, name),
  CONSTRAINT rules_domain_fkey FOREIGN KEY (domain_key) REFERENCES domains(key) ON DELETE CASCADE,
  CONSTRAINT rules_status_check CHECK (status IN ('enabled', 'disabled')),
  CONSTRAINT rules_paused_check CHECK (num_nulls(paused_at, paused_reason, pause_kind) IN (0, 3)),
  CONSTRAINT rules_error_check CHECK (num_nulls(error_at, error_reason) IN (0, 2))
);
COMMENT ON TABLE rules IS 'Rules: a source of messages, a condition, its shape in time, and actions.';
COMMENT ON COLUMN rules.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN rules.id IS 'Id that users see.';
COMMENT ON COLUMN rules.domain_key IS 'The domain.';
COMMENT ON COLUMN rules.name IS 'Name, unique in the domain.';
COMMENT ON COLUMN rules.description IS 'What it is for.';
COMMENT ON COLUMN rules.status IS 'enabled or disabled.';
COMMENT ON COLUMN rules.definition IS 'Source, condition, shape in time, severity and actions, as users wrote them.';
COMMENT ON COLUMN rules.user_key IS 'The user with whose rights it reads and acts: who last changed or enabled it. The user may be deleted.';
COMMENT ON COLUMN rules.is_behind IS 'It reads on by itself from its place; false: with the others of its domain, but nothing before its place.';
COMMENT ON COLUMN rules.xid IS 'Transaction of the batch of its place.';
COMMENT ON COLUMN rules.seq IS 'Number of that batch.';
COMMENT ON COLUMN rules.message IS 'Number of a message in that batch: earlier ones were evaluated, or are not for it.';
COMMENT ON COLUMN rules.paused_at IS 'When it was paused; NULL: it is not. It goes on at its place.';
COMMENT ON COLUMN rules.paused_reason IS 'Why, as a sentence.';
COMMENT ON COLUMN rules.pause_kind IS 'right: a right is lacking, and it goes on when that is back; loop: it caused itself; costly: it took too much time or memory. The last two wait for a change or for enable.';
COMMENT ON COLUMN rules.checked_at IS 'When it was last looked whether a paused rule can go on.';
COMMENT ON COLUMN rules.error_at IS 'When something last failed; NULL: nothing did since it was changed.';
COMMENT ON COLUMN rules.error_reason IS 'What, as a sentence.';
COMMENT ON COLUMN rules.error_count IS 'How often, since it was changed.';
COMMENT ON COLUMN rules.seen IS 'Records and JSON objects that it was evaluated for.';
COMMENT ON COLUMN rules.matched IS 'Those for which its condition held.';
COMMENT ON COLUMN rules.unmatchable IS 'Those for which its condition has no result, such as text where it compares numbers.';
COMMENT ON COLUMN rules.raised IS 'How often it raised.';
COMMENT ON COLUMN rules.acted IS 'Publications and starts that it recorded.';
COMMENT ON COLUMN rules.last_match_at IS 'When its condition last held.';
COMMENT ON COLUMN rules.created_by IS 'Id of the user who created it.';
COMMENT ON COLUMN rules.created_at IS 'When it was created.';
COMMENT ON COLUMN rules.updated_by IS 'Id of the user who last changed it; NULL: it was never changed.';
COMMENT ON COLUMN rules.updated_at IS 'When it was last changed; NULL: never.';
CREATE INDEX rules_page ON rules (domain_key, created_at, key);
CREATE INDEX rules_behind ON rules (domain_key) WHERE is_behind AND status = 'enabled' AND paused_at IS NULL;
CREATE INDEX rules_paused ON rules (checked_at) WHERE paused_at IS NOT NULL AND status = 'enabled';

CREATE TABLE rule_states (
  rule_key bigint NOT NULL,
  publisher_id text NOT NULL,
  channel_key bigint NOT NULL,
  subtopic text NOT NULL,
  name text NOT NULL,
  series_digest bytea NOT NULL,
  state jsonb NOT NULL,
  due_at timestamptz,
  CONSTRAINT rule_states_pkey PRIMARY KEY (rule_key, series_digest),
  CONSTRAINT rule_states_rule_fkey FOREIGN KEY (rule_key) REFERENCES rules(key) ON DELETE CASCADE
);
COMMENT ON TABLE rule_states IS 'The state of a rule for a series of a client. A series without a row is idle.';
COMMENT ON COLUMN rule_states.rule_key IS 'The rule.';
COMMENT ON COLUMN rule_states.publisher_id IS 'Id of the client; empty: a user or a task sent the message.';
COMMENT ON COLUMN rule_states.channel_key IS 'The channel.';
COMMENT ON COLUMN rule_states.subtopic IS 'The subtopic.';
COMMENT ON COLUMN rule_states.name IS 'Name of the record; empty: the message has no records.';
COMMENT ON COLUMN rule_states.series_digest IS 'SHA-256 of client, channel, subtopic and name, which together may be too long for an index.';
COMMENT ON COLUMN rule_states.state IS 'Whether the condition holds, since when, and the message that caused it.';
COMMENT ON COLUMN rule_states.due_at IS 'When time alone changes the state; NULL: never.';
CREATE INDEX rule_states_due ON rule_states (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE rule_publications (
  key bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  domain_key bigint NOT NULL,
  rule_key bigint NOT NULL,
  rule_id uuid NOT NULL,
  user_key bigint NOT NULL,
  channel_id uuid NOT NULL,
  subtopic text NOT NULL,
  content_type text NOT NULL,
  payload text NOT NULL,
  depth integer NOT NULL,
  origin text NOT NULL,
  attempts smallint NOT NULL DEFAULT 0,
  due_at timestamptz NOT NULL DEFAULT now(),
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT rule_publications_pkey PRIMARY KEY (key),
  CONSTRAINT rule_publications_origin_key UNIQUE (rule_id, origin),
  CONSTRAINT rule_publications_domain_fkey FOREIGN KEY (domain_key) REFERENCES domains(key) ON DELETE CASCADE
);
COMMENT ON TABLE rule_publications IS 'Messages that rules publish: written in the transaction of the state that caused them, stored once by any process of the platform.';
COMMENT ON COLUMN rule_publications.key IS 'Internal key, never shown to users.';
COMMENT ON COLUMN rule_publications.domain_key IS 'The domain.';
COMMENT ON COLUMN rule_publications.rule_key IS 'The rule, which may be deleted since.';
COMMENT ON COLUMN rule_publications.rule_id IS 'Its id.';
COMMENT ON COLUMN rule_publications.user_key IS 'With whose rights it is published.';
COMMENT ON COLUMN rule_publications.channel_id IS 'Id of the channel.';
COMMENT ON COLUMN rule_publications.subtopic IS 'Subtopic; empty: the channel itself.';
COMMENT ON COLUMN rule_publications.content_type IS 'Content type of the payload.';
COMMENT ON COLUMN rule_publications.payload IS 'The payload.';
COMMENT ON COLUMN rule_publications.depth IS 'Number of rules in the chain of causes, this one included.';
COMMENT ON COLUMN rule_publications.origin IS 'SHA-256, in hexadecimal, of the message, the series and the action that caused it: the same origin publishes one message.';
COMMENT ON COLUMN rule_publications.attempts IS 'Number of attempts.';
COMMENT ON COLUMN rule_publications.due_at IS 'When it may be taken.';
COMMENT ON COLUMN rule_publications.created_at IS 'When it was caused.';
CREATE INDEX rule_publications_due ON rule_publications (due_at, key);
CREATE INDEX rule_publications_domain ON rule_publications (domain_key, due_at, key);

CREATE TABLE rule_clock (
  key smallint NOT NULL,
  alive_at timestamptz NOT NULL,
  CONSTRAINT rule_clock_pkey PRIMARY KEY (key),
  CONSTRAINT rule_clock_key_check CHECK (key = 1)
);
COMMENT ON TABLE rule_clock IS 'When any process last evaluated rules: a time in which none did counts for no rule.';
COMMENT ON COLUMN rule_clock.key IS 'There is one row.';
COMMENT ON COLUMN rule_clock.alive_at IS 'When a process was last there.';
