-- expand: what was given up is kept, and can be tried again: messages of triggers, publications, notifications
ALTER TABLE task_messages ADD COLUMN refused_at timestamptz, ADD COLUMN refused_reason text, ADD COLUMN letter_id uuid,
  ADD CONSTRAINT task_messages_refused_check CHECK (num_nulls(refused_at, refused_reason, letter_id) IN (0, 3));
COMMENT ON COLUMN task_messages.refused_at IS 'When it was refused; NULL: it was not. A refused message is a dead letter: it is due at infinity.';
COMMENT ON COLUMN task_messages.refused_reason IS 'Why, as a sentence.';
COMMENT ON COLUMN task_messages.letter_id IS 'Id of the dead letter that users see.';
CREATE INDEX task_messages_refused ON task_messages (task_key, refused_at, letter_id) WHERE refused_at IS NOT NULL;
ALTER TABLE task_publications ADD COLUMN refused_at timestamptz, ADD COLUMN refused_reason text, ADD COLUMN letter_id uuid,
  ADD CONSTRAINT task_publications_refused_check CHECK (num_nulls(refused_at, refused_reason, letter_id) IN (0, 3));
COMMENT ON COLUMN task_publications.refused_at IS 'As in task_messages.';
COMMENT ON COLUMN task_publications.refused_reason IS 'As in task_messages.';
COMMENT ON COLUMN task_publications.letter_id IS 'As in task_messages.';
CREATE INDEX task_publications_refused ON task_publications (task_key, refused_at, letter_id) WHERE refused_at IS NOT NULL;
ALTER TABLE notification_deliveries ADD COLUMN id uuid NOT NULL DEFAULT gen_random_uuid(), ADD COLUMN given_up_at timestamptz;
COMMENT ON COLUMN notification_deliveries.id IS 'Id that users see of a delivery that was given up.';
COMMENT ON COLUMN notification_deliveries.given_up_at IS 'When it was given up; NULL: it was not, or a node of an earlier build did.';
