-- expand: the notifications of a client are delivered in the order of its messages
CREATE INDEX notification_deliveries_order ON notification_deliveries (subscription_key, (payload ->> 'publisher'), key)
  WHERE next_attempt_at IS NOT NULL;
