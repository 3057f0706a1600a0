-- expand: notifications that a host did not answer follow when it answers again
ALTER TABLE notification_deliveries ADD COLUMN was_unanswered boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN notification_deliveries.was_unanswered IS 'The last attempt failed because the host did not answer; a node of an earlier build does not write it.';
