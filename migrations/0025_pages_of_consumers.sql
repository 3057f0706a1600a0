-- expand: messages that a named consumer took together are one row until they are answered otherwise than together
CREATE TABLE message_consumer_pages (
  consumer_key bigint NOT NULL,
  xid xid8 NOT NULL,
  seq bigint NOT NULL,
  message integer NOT NULL,
  last_xid xid8 NOT NULL,
  last_seq bigint NOT NULL,
  last_message integer NOT NULL,
  messages integer NOT NULL,
  digest text NOT NULL,
  order_keys text[] NOT NULL,
  content text NOT NULL,
  due_at timestamptz NOT NULL,
  CONSTRAINT message_consumer_pages_pkey PRIMARY KEY (consumer_key, xid, seq, message),
  CONSTRAINT message_consumer_pages_consumer_fkey FOREIGN KEY (consumer_key) REFERENCES message_consumers(key) ON DELETE CASCADE
);
COMMENT ON TABLE message_consumer_pages IS 'Messages that a named consumer was given together, for the first time, and that are in doubt. Acknowledged together they are deleted; otherwise they become rows of message_consumer_deliveries.';
COMMENT ON COLUMN message_consumer_pages.consumer_key IS 'The consumer.';
COMMENT ON COLUMN message_consumer_pages.xid IS 'Transaction of the batch of the first message.';
COMMENT ON COLUMN message_consumer_pages.seq IS 'Number of its batch.';
COMMENT ON COLUMN message_consumer_pages.message IS 'Its number in the batch.';
COMMENT ON COLUMN message_consumer_pages.last_xid IS 'Transaction of the batch of the last message.';
COMMENT ON COLUMN message_consumer_pages.last_seq IS 'Number of its batch.';
COMMENT ON COLUMN message_consumer_pages.last_message IS 'Its number in the batch.';
COMMENT ON COLUMN message_consumer_pages.messages IS 'Number of messages.';
COMMENT ON COLUMN message_consumer_pages.digest IS 'Digest of the positions of all of them, in their order.';
COMMENT ON COLUMN message_consumer_pages.order_keys IS 'Clients or channels whose later messages they hold back; empty: none.';
COMMENT ON COLUMN message_consumer_pages.content IS 'What the rows of message_consumer_deliveries need, as JSON.';
COMMENT ON COLUMN message_consumer_pages.due_at IS 'When they are delivered again unless they are acknowledged before.';
