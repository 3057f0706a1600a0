-- expand: how many clients, channels and groups a domain has of each status, for the totals of listings without a filter

-- The sum of the rows of a domain, type and status. A row for each statement that changed it, so that none waits for another; the
-- program makes one of them from time to time.
CREATE TABLE entity_counts (
  domain_key bigint NOT NULL,
  entity_type text NOT NULL,
  status text NOT NULL,
  amount bigint NOT NULL
);
CREATE INDEX entity_counts_of ON entity_counts (domain_key, entity_type, status) INCLUDE (amount);

-- Triggers and no statements of the program: entities go with what they lie in, too. The argument is the type of entity.
CREATE FUNCTION count_entities() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO entity_counts SELECT domain_key, TG_ARGV[0], status, count(*) FROM new_rows GROUP BY domain_key, status;
  ELSIF TG_OP = 'DELETE' THEN
    INSERT INTO entity_counts SELECT domain_key, TG_ARGV[0], status, -count(*) FROM old_rows GROUP BY domain_key, status;
  ELSE
    INSERT INTO entity_counts
    SELECT domain_key, TG_ARGV[0], status, sum(amount)
      FROM (SELECT domain_key, status, 1 AS amount FROM new_rows UNION ALL SELECT domain_key, status, -1 FROM old_rows) changed
     GROUP BY domain_key, status HAVING sum(amount) <> 0;
  END IF;
  RETURN NULL;
END
$$;

LOCK TABLE clients, channels, groups IN SHARE ROW EXCLUSIVE MODE;
INSERT INTO entity_counts
SELECT domain_key, 'client', status, count(*) FROM clients GROUP BY domain_key, status UNION ALL
SELECT domain_key, 'channel', status, count(*) FROM channels GROUP BY domain_key, status UNION ALL
SELECT domain_key, 'group', status, count(*) FROM groups GROUP BY domain_key, status;
CREATE TRIGGER clients_counted_inserted AFTER INSERT ON clients REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_entities('client');
CREATE TRIGGER clients_counted_deleted AFTER DELETE ON clients REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION count_entities('client');
CREATE TRIGGER clients_counted_updated AFTER UPDATE ON clients REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_entities('client');
CREATE TRIGGER channels_counted_inserted AFTER INSERT ON channels REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_entities('channel');
CREATE TRIGGER channels_counted_deleted AFTER DELETE ON channels REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION count_entities('channel');
CREATE TRIGGER channels_counted_updated AFTER UPDATE ON channels REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_entities('channel');
CREATE TRIGGER groups_counted_inserted AFTER INSERT ON groups REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_entities('group');
CREATE TRIGGER groups_counted_deleted AFTER DELETE ON groups REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION count_entities('group');
CREATE TRIGGER groups_counted_updated AFTER UPDATE ON groups REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_entities('group');
