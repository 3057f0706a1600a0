-- expand: rules about the state of clients, and the changes of these states that they have not evaluated yet
-- Of the migration before. It is first, while nothing is locked here.
ALTER TABLE alarm_history VALIDATE CONSTRAINT alarm_history_change_check;

ALTER TABLE rules ADD COLUMN look_after bigint;
COMMENT ON COLUMN rules.look_after IS 'A rule about state has looked at clients up to this key since it began; NULL: it has looked at all of them, or is about something else.';
CREATE INDEX rules_of_state ON rules (domain_key) WHERE definition -> 'source' ->> 'type' = 'state' AND status = 'enabled' AND paused_at IS NULL;
CREATE INDEX rules_looking ON rules (domain_key) WHERE look_after IS NOT NULL AND status = 'enabled' AND paused_at IS NULL;

CREATE TABLE rule_changes (
  key bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  domain_key bigint NOT NULL,
  client_key bigint NOT NULL,
  client_id uuid,
  document text,
  desired jsonb,
  reported jsonb,
  delta jsonb,
  is_online boolean,
  changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT rule_changes_pkey PRIMARY KEY (key)
);
COMMENT ON TABLE rule_changes IS 'Changes of the state of clients in domains with rules about it, until their rules have evaluated them. Written by triggers, in the transaction of the change.';
COMMENT ON COLUMN rule_changes.key IS 'The order in which they are evaluated.';
COMMENT ON COLUMN rule_changes.domain_key IS 'The domain.';
COMMENT ON COLUMN rule_changes.client_key IS 'The client.';
COMMENT ON COLUMN rule_changes.client_id IS 'Id of a client that was deleted; NULL: it was not.';
COMMENT ON COLUMN rule_changes.document IS 'Name of the document that changed; NULL: none did.';
COMMENT ON COLUMN rule_changes.desired IS 'What was desired after the change; NULL: no document changed.';
COMMENT ON COLUMN rule_changes.reported IS 'What was reported after it; NULL: no document changed.';
COMMENT ON COLUMN rule_changes.delta IS 'The difference of both; NULL: no document changed.';
COMMENT ON COLUMN rule_changes.is_online IS 'Whether the client went online or offline; NULL: neither.';
COMMENT ON COLUMN rule_changes.changed_at IS 'When it changed.';
CREATE INDEX rule_changes_domain ON rule_changes (domain_key, key);

CREATE FUNCTION has_rules_of_state(wanted bigint) RETURNS boolean STABLE LANGUAGE plpgsql AS $$
BEGIN
  RETURN EXISTS (SELECT FROM rules WHERE domain_key = wanted AND definition -> 'source' ->> 'type' = 'state' AND status = 'enabled'
    AND paused_at IS NULL);
END
$$;
COMMENT ON FUNCTION has_rules_of_state(bigint) IS 'Whether changes of the state of clients of the domain are kept for its rules.';

CREATE FUNCTION rules_note_document() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF has_rules_of_state(coalesce(NEW.domain_key, OLD.domain_key)) THEN
    INSERT INTO rule_changes (domain_key, client_key, document, desired, reported, delta)
      VALUES (coalesce(NEW.domain_key, OLD.domain_key), coalesce(NEW.client_key, OLD.client_key), coalesce(NEW.name, OLD.name),
        coalesce(NEW.desired, '{}'), coalesce(NEW.reported, '{}'), coalesce(NEW.delta, '{}'));
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER device_states_noted AFTER INSERT OR DELETE OR UPDATE OF desired, reported ON device_states
  FOR EACH ROW EXECUTE FUNCTION rules_note_document();

CREATE FUNCTION rules_note_connection() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  domain bigint := (SELECT domain_key FROM clients WHERE key = NEW.client_key);
BEGIN
  IF has_rules_of_state(domain) THEN
    INSERT INTO rule_changes (domain_key, client_key, is_online) VALUES (domain, NEW.client_key, NEW.is_online);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER client_telemetry_began AFTER INSERT ON client_telemetry
  FOR EACH ROW WHEN (NEW.is_online) EXECUTE FUNCTION rules_note_connection();
CREATE TRIGGER client_telemetry_noted AFTER UPDATE OF is_online ON client_telemetry
  FOR EACH ROW WHEN (NEW.is_online <> OLD.is_online) EXECUTE FUNCTION rules_note_connection();

CREATE FUNCTION rules_note_deletion() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF has_rules_of_state(OLD.domain_key) THEN
    INSERT INTO rule_changes (domain_key, client_key, client_id) VALUES (OLD.domain_key, OLD.key, OLD.id);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER clients_noted AFTER DELETE ON clients FOR EACH ROW EXECUTE FUNCTION rules_note_deletion();
