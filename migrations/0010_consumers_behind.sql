-- expand: triggers and notifications that are slower than their messages fall behind instead of dropping them
ALTER TABLE task_triggers ADD COLUMN behind_xid xid8, ADD COLUMN behind_seq bigint, ADD COLUMN behind_message integer,
  ADD COLUMN behind_since timestamptz, ADD COLUMN expired bigint NOT NULL DEFAULT 0, ADD COLUMN excess text NOT NULL DEFAULT 'drop',
  ADD CONSTRAINT task_triggers_behind_check CHECK (num_nulls(behind_xid, behind_seq, behind_message, behind_since) IN (0, 4)),
  ADD CONSTRAINT task_triggers_excess_check CHECK (excess IN ('drop', 'wait'));
COMMENT ON COLUMN task_triggers.behind_xid IS 'It is behind: transaction of the batch that it goes on with; NULL: it has taken or dropped every message that others have passed.';
COMMENT ON COLUMN task_triggers.behind_seq IS 'Number of that batch.';
COMMENT ON COLUMN task_triggers.behind_message IS 'Number of the first message in that batch that it has not taken.';
COMMENT ON COLUMN task_triggers.behind_since IS 'Arrival of that message.';
COMMENT ON COLUMN task_triggers.expired IS 'Number of matches that waited for longer than messages wait.';
COMMENT ON COLUMN task_triggers.excess IS 'What becomes of matches beyond the rate: drop, or wait for the next window.';
CREATE INDEX task_triggers_behind ON task_triggers (behind_since) WHERE behind_since IS NOT NULL;

ALTER TABLE notification_subscriptions ADD COLUMN behind_xid xid8, ADD COLUMN behind_seq bigint, ADD COLUMN behind_message integer,
  ADD COLUMN behind_since timestamptz,
  ADD CONSTRAINT notification_subscriptions_behind_check CHECK (num_nulls(behind_xid, behind_seq, behind_message, behind_since) IN (0, 4));
COMMENT ON COLUMN notification_subscriptions.behind_xid IS 'As in task_triggers.';
COMMENT ON COLUMN notification_subscriptions.behind_seq IS 'As in task_triggers.';
COMMENT ON COLUMN notification_subscriptions.behind_message IS 'As in task_triggers.';
COMMENT ON COLUMN notification_subscriptions.behind_since IS 'As in task_triggers.';
COMMENT ON COLUMN notification_subscriptions.missed IS 'Messages that waited for longer than messages wait; rows of earlier builds count dropped ones, too.';
CREATE INDEX notification_subscriptions_behind ON notification_subscriptions (behind_since) WHERE behind_since IS NOT NULL;
