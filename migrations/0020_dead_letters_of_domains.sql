-- expand: the dead letters of a domain are counted without reading those of other domains, or tasks and subscriptions without any
ALTER TABLE task_messages ADD COLUMN letter_domain_key bigint;
COMMENT ON COLUMN task_messages.letter_domain_key IS 'Domain of the task of a dead letter; NULL: it is none, or the task has no domain. Written by a trigger.';
UPDATE task_messages m SET letter_domain_key = t.domain_key FROM tasks t WHERE t.key = m.task_key AND m.refused_at IS NOT NULL;

-- A trigger, because nodes of the previous version refuse messages, too. Statements that do not refuse or retry do not run it.
CREATE FUNCTION set_task_letter_domain() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.letter_domain_key := (SELECT t.domain_key FROM tasks t WHERE t.key = NEW.task_key AND NEW.refused_at IS NOT NULL);
  RETURN NEW;
END
$$;
CREATE TRIGGER task_messages_letter_domain_set BEFORE UPDATE OF refused_at ON task_messages
  FOR EACH ROW EXECUTE FUNCTION set_task_letter_domain();

CREATE INDEX task_messages_letters ON task_messages (letter_domain_key, task_key) WHERE refused_at IS NOT NULL;
CREATE INDEX task_publications_letters ON task_publications (domain_key, task_key) WHERE refused_at IS NOT NULL;
CREATE INDEX notification_deliveries_letters ON notification_deliveries (subscription_key, key) WHERE next_attempt_at IS NULL;
