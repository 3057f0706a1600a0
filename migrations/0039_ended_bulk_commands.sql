-- expand: the counts of commands to many clients that have ended, in place of a row for each client
ALTER TABLE device_command_bulks ADD COLUMN ended_progress json;
COMMENT ON COLUMN device_command_bulks.ended_progress IS 'How many clients it had in each state when it ended; NULL: they are counted.';
