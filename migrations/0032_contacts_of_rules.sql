-- expand: contacts of rules, whose mails and webhooks are delivered as those of subscriptions are
ALTER TABLE notification_subscriptions ALTER COLUMN channel_key DROP NOT NULL, ADD COLUMN rule_key bigint, ADD COLUMN member_key bigint,
  ADD CONSTRAINT notification_subscriptions_rule_fkey FOREIGN KEY (rule_key) REFERENCES rules(key) ON DELETE CASCADE,
  ADD CONSTRAINT notification_subscriptions_of_check CHECK (num_nonnulls(channel_key, rule_key) = 1);
COMMENT ON TABLE notification_subscriptions IS 'Contacts, by mail or an HTTPS URL: of users who subscribe to messages of a channel, and of rules.';
COMMENT ON COLUMN notification_subscriptions.channel_key IS 'The channel of a subscription; NULL: it is a contact of a rule.';
COMMENT ON COLUMN notification_subscriptions.rule_key IS 'The rule whose contact it is, with the rights of the user; NULL: it is a subscription.';
COMMENT ON COLUMN notification_subscriptions.member_key IS 'The member of the domain of the rule whose verified mail address it is, so that no link has to be opened; NULL: none.';
CREATE UNIQUE INDEX notification_subscriptions_of_rule ON notification_subscriptions (rule_key, contact) WHERE rule_key IS NOT NULL;
