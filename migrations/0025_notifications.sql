-- expand: subscriptions of notifications

-- Whoever subscribed is told of messages of a channel, by mail or at an address of his own.
CREATE TABLE notification_subscriptions (
  key bigint CONSTRAINT notification_subscriptions_pkey PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
  id uuid NOT NULL CONSTRAINT notification_subscriptions_id_key UNIQUE,
  user_key bigint NOT NULL CONSTRAINT notification_subscriptions_user_fkey REFERENCES users (key) ON DELETE CASCADE,
  channel_key bigint NOT NULL CONSTRAINT notification_subscriptions_channel_fkey REFERENCES channels (key) ON DELETE CASCADE,
  -- As it was given; what it means stands beside it.
  topic text NOT NULL,
  -- Subtopic filter in the canonical form; '' is the channel itself.
  filter text NOT NULL,
  contact text NOT NULL,
  -- Messages that were left out, because too many waited.
  missed bigint NOT NULL DEFAULT 0,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT notification_subscriptions_contact_key UNIQUE (user_key, topic, contact)
);
CREATE INDEX notification_subscriptions_channel ON notification_subscriptions (channel_key);

-- What is still to be delivered, and what was given up.
CREATE TABLE notification_deliveries (
  key bigint CONSTRAINT notification_deliveries_pkey PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
  subscription_key bigint NOT NULL CONSTRAINT notification_deliveries_subscription_fkey
    REFERENCES notification_subscriptions (key) ON DELETE CASCADE,
  -- The message as it is told.
  payload jsonb NOT NULL,
  attempts integer NOT NULL DEFAULT 0,
  -- NULL: it was given up.
  next_attempt_at timestamptz DEFAULT now(),
  last_error text,
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX notification_deliveries_due ON notification_deliveries (next_attempt_at) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX notification_deliveries_subscription ON notification_deliveries (subscription_key, key);
