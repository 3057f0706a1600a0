-- expand: a subscription of a device on a topic of its own follows no channel
ALTER TABLE mqtt_subscriptions ALTER COLUMN channel_key DROP NOT NULL;
COMMENT ON COLUMN mqtt_subscriptions.channel_key IS 'Channel of the filter. A client that is disconnected from the channel loses the subscription. NULL: a topic of the device itself (c/<domain>/…).';
