-- expand: a process has one row and one sign of life, whatever it holds
ALTER TABLE nodes ADD COLUMN dead_after_seconds double precision NOT NULL DEFAULT 30;
ALTER TABLE nodes ADD COLUMN position text;
COMMENT ON TABLE nodes IS 'One row per running process. One that was not seen for its time is dead: another one removes what it held, and its row.';
COMMENT ON COLUMN nodes.dead_after_seconds IS 'Seconds without a sign of life after which the process is dead; 30: of an earlier build.';
COMMENT ON COLUMN nodes.position IS 'Position up to which it has delivered the log of messages to MQTT subscriptions without a position of their own; NULL: none.';
COMMENT ON TABLE mqtt_nodes IS 'Earlier builds: processes that hold MQTT sessions. Triggers keep it and nodes equal.';
COMMENT ON TABLE presence_nodes IS 'Earlier builds: processes that hold sessions of clients. Triggers keep it and nodes equal.';

-- A process of this build has no row in presence_nodes while no earlier one runs. Earlier ones check their row before they write sessions.
ALTER TABLE client_presence DROP CONSTRAINT client_presence_node_fkey;

-- Earlier builds have three rows with three names. Their rows in the two older tables are copied to nodes, and those of this build to the older
-- tables while a row of an earlier build exists. Each trigger runs for statements of a process, not for those of another trigger.
-- Two processes that start do not miss each other: they take the same lock.

CREATE FUNCTION nodes_copy_new() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('nodes_copy', 0));
  IF NEW.migration < 22 THEN
    -- Locks the rows, so that a position is not written between this copy and its commit.
    PERFORM FROM nodes WHERE migration >= 22 ORDER BY id FOR NO KEY UPDATE;
  END IF;
  -- An earlier build takes a process of this one for dead a minute after this build does, so that this one removes what it held.
  INSERT INTO mqtt_nodes (node, seen_at, position)
    SELECT id, seen_at + interval '1 minute', position FROM nodes n WHERE migration >= 22
       AND (NEW.migration < 22 OR id = NEW.id AND EXISTS (SELECT FROM nodes WHERE migration < 22))
    ON CONFLICT ON CONSTRAINT mqtt_nodes_pkey DO UPDATE SET seen_at = EXCLUDED.seen_at, position = EXCLUDED.position;
  INSERT INTO presence_nodes (node, seen_at)
    SELECT id, seen_at + interval '1 minute' FROM nodes n WHERE migration >= 22
       AND (NEW.migration < 22 OR id = NEW.id AND EXISTS (SELECT FROM nodes WHERE migration < 22))
    ON CONFLICT ON CONSTRAINT presence_nodes_pkey DO UPDATE SET seen_at = EXCLUDED.seen_at;
  RETURN NULL;
END
$$;
CREATE TRIGGER nodes_new_copied AFTER INSERT ON nodes FOR EACH ROW EXECUTE FUNCTION nodes_copy_new();

CREATE FUNCTION nodes_copy_seen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE mqtt_nodes SET seen_at = NEW.seen_at + interval '1 minute', position = NEW.position WHERE node = NEW.id;
  UPDATE presence_nodes SET seen_at = NEW.seen_at + interval '1 minute' WHERE node = NEW.id;
  RETURN NULL;
END
$$;
CREATE TRIGGER nodes_seen_copied AFTER UPDATE ON nodes FOR EACH ROW
  WHEN (NEW.migration >= 22 AND pg_trigger_depth() = 0) EXECUTE FUNCTION nodes_copy_seen();

CREATE FUNCTION nodes_copy_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM mqtt_nodes WHERE node = OLD.id;
  DELETE FROM presence_nodes WHERE node = OLD.id;
  RETURN NULL;
END
$$;
CREATE TRIGGER nodes_end_copied AFTER DELETE ON nodes FOR EACH ROW
  WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION nodes_copy_end();

CREATE FUNCTION mqtt_nodes_copy() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO nodes (id, kind, version, migration, seen_at, dead_after_seconds, position)
    VALUES (NEW.node, 'MQTT sessions of an earlier build', '', 21, NEW.seen_at, 15, NEW.position)
    ON CONFLICT ON CONSTRAINT nodes_pkey DO UPDATE SET seen_at = EXCLUDED.seen_at, position = EXCLUDED.position;
  RETURN NULL;
END
$$;
CREATE TRIGGER mqtt_nodes_copied AFTER INSERT OR UPDATE ON mqtt_nodes FOR EACH ROW
  WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION mqtt_nodes_copy();

CREATE FUNCTION presence_nodes_copy() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO nodes (id, kind, version, migration, seen_at, dead_after_seconds)
    VALUES (NEW.node, 'sessions of an earlier build', '', 21, NEW.seen_at, 20)
    ON CONFLICT ON CONSTRAINT nodes_pkey DO UPDATE SET seen_at = EXCLUDED.seen_at;
  RETURN NULL;
END
$$;
CREATE TRIGGER presence_nodes_copied AFTER INSERT OR UPDATE ON presence_nodes FOR EACH ROW
  WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION presence_nodes_copy();

-- A process of this build whose row an earlier one removed notices it by its missing row in nodes.
CREATE FUNCTION nodes_copy_removal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM nodes WHERE id = OLD.node;
  RETURN NULL;
END
$$;
CREATE TRIGGER mqtt_nodes_removed AFTER DELETE ON mqtt_nodes FOR EACH ROW
  WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION nodes_copy_removal();
CREATE TRIGGER presence_nodes_removed AFTER DELETE ON presence_nodes FOR EACH ROW
  WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION nodes_copy_removal();

-- Earlier processes that run now.
INSERT INTO nodes (id, kind, version, migration, seen_at, dead_after_seconds, position)
  SELECT node, 'MQTT sessions of an earlier build', '', 21, seen_at, 15, position FROM mqtt_nodes
  ON CONFLICT ON CONSTRAINT nodes_pkey DO NOTHING;
INSERT INTO nodes (id, kind, version, migration, seen_at, dead_after_seconds)
  SELECT node, 'sessions of an earlier build', '', 21, seen_at, 20 FROM presence_nodes
  ON CONFLICT ON CONSTRAINT nodes_pkey DO NOTHING;
