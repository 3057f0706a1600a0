-- expand: a task pauses when the user who granted its channels has lost a right, and secrets of tasks have an action of their own
ALTER TABLE tasks ADD COLUMN paused_at timestamptz;
COMMENT ON COLUMN tasks.paused_at IS 'Since when it is paused, because its grantor has lost a right; NULL: it is not.';
COMMENT ON COLUMN tasks.user_key IS 'Its grantor: the user who granted its channels, with whose rights it uses them; NULL: none, or deleted.';
CREATE INDEX tasks_paused ON tasks (key) WHERE paused_at IS NOT NULL;
-- Tasks that use channels and whose grantor was deleted; they are paused when they are found.
CREATE INDEX tasks_without_grantor ON tasks (key)
  WHERE user_key IS NULL AND paused_at IS NULL AND (trigger IS NOT NULL OR publish_result IS NOT NULL OR grants::text <> '[]');
-- A task whose channel was deleted has a trigger, and no rule for it.
CREATE INDEX tasks_triggered ON tasks (key) WHERE trigger IS NOT NULL;
UPDATE roles SET actions = actions || '{task_secrets}'
 WHERE entity_type = 'domain' AND name = 'editor' AND 'task_update' = ANY (actions) AND 'task_secrets' <> ALL (actions);
