-- expand: triggers and subscriptions get the messages that were stored after them, however late these are read
ALTER TABLE task_triggers ADD COLUMN since_xid xid8;
ALTER TABLE task_triggers ALTER COLUMN since_xid SET DEFAULT position_xid();
COMMENT ON COLUMN task_triggers.since_xid IS 'The transaction that wrote the trigger for this channel: earlier messages are not for it; NULL: of an earlier build.';
ALTER TABLE notification_subscriptions ADD COLUMN since_xid xid8;
ALTER TABLE notification_subscriptions ALTER COLUMN since_xid SET DEFAULT position_xid();
COMMENT ON COLUMN notification_subscriptions.since_xid IS 'The transaction that made or confirmed it: earlier messages are not for it; NULL: of an earlier build.';
