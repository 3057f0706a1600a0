-- expand: what a subscription to notifications was refused stays visible until the next success
ALTER TABLE notification_subscriptions ADD COLUMN error_at timestamptz, ADD COLUMN error_reason text,
  ADD COLUMN error_count bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN notification_subscriptions.error_at IS 'When a notification last failed since the last delivery; NULL: none has.';
COMMENT ON COLUMN notification_subscriptions.error_reason IS 'Why it failed, as a sentence.';
COMMENT ON COLUMN notification_subscriptions.error_count IS 'Number of failures since the last delivery.';
