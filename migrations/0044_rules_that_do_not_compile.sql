-- expand: rules that do not compile are paused by themselves
COMMENT ON COLUMN rules.pause_kind IS 'right: a right is lacking, and it goes on when that is back; invalid: it does not compile, and it goes on when it does; loop: it caused itself; costly: it took too much time or memory; function: the task that decides failed or was deleted. The last three wait for a change or for enable.';
