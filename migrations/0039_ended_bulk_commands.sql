-- expand: commands to many clients keep their counts in place of a row for each client, and can be repeated with a key
ALTER TABLE device_command_bulks ADD COLUMN ended_progress json;
COMMENT ON COLUMN device_command_bulks.ended_progress IS 'How many clients it had in each state when it ended; NULL: they are counted.';
ALTER TABLE device_command_bulks ADD COLUMN idempotency bytea;
COMMENT ON COLUMN device_command_bulks.idempotency IS 'SHA-256 of the creator and the Idempotency-Key; NULL: there was none, or it was used again after its time.';
ALTER TABLE device_command_bulks ADD COLUMN request_digest bytea;
COMMENT ON COLUMN device_command_bulks.request_digest IS 'SHA-256 of the request with that key; NULL: there was none.';
CREATE UNIQUE INDEX device_command_bulks_idempotency_key ON device_command_bulks (domain_key, idempotency) WHERE idempotency IS NOT NULL;
