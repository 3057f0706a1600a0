-- expand: profiles have actions of their own; notifications are shared fairly by owner, and mail addresses confirm first

-- The built-in role admin holds every action without a row. Of the others only editors that could manage profiles till now, by
-- client_create, go on doing so: nobody gains anything by an update.
UPDATE roles SET actions = actions || ARRAY(
    SELECT added FROM unnest(ARRAY['profile_create', 'profile_read', 'profile_update', 'profile_delete']) AS added
     WHERE added <> ALL (actions))
 WHERE entity_type = 'domain' AND name = 'editor' AND 'client_create' = ANY (actions);

ALTER TABLE notification_subscriptions
  -- When the address of a mail agreed to it; NULL: it has not, and nothing is sent. Of no meaning for an https contact.
  ADD COLUMN confirmed_at timestamptz,
  -- When the link was sent to it last.
  ADD COLUMN confirmation_sent_at timestamptz;
UPDATE notification_subscriptions n SET confirmed_at = now()
  FROM users u WHERE u.key = n.user_key AND u.verified_at IS NOT NULL AND lower(u.email) = lower(n.contact);

-- Of the subscription: deliveries are claimed by owner.
ALTER TABLE notification_deliveries ADD COLUMN user_key bigint;
UPDATE notification_deliveries w SET user_key = n.user_key FROM notification_subscriptions n WHERE n.key = w.subscription_key;
CREATE INDEX notification_deliveries_owner ON notification_deliveries (user_key, next_attempt_at, key) WHERE next_attempt_at IS NOT NULL;

-- A trigger and no statement of the program alone: what an older node puts down meanwhile has an owner too.
CREATE FUNCTION notification_deliveries_have_an_owner() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  SELECT n.user_key INTO NEW.user_key FROM notification_subscriptions n WHERE n.key = NEW.subscription_key;
  RETURN NEW;
END
$$;
CREATE TRIGGER notification_deliveries_have_an_owner BEFORE INSERT ON notification_deliveries
  FOR EACH ROW WHEN (NEW.user_key IS NULL) EXECUTE FUNCTION notification_deliveries_have_an_owner();
