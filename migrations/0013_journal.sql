-- expand: what the listings and the events of the journal read: records by entity, entities that are gone, who called how

-- What kind of token the caller had, and whether it administers the platform. NULL: no token was in use.
ALTER TABLE journal ADD COLUMN token_type text;
ALTER TABLE journal ADD COLUMN super_admin boolean NOT NULL DEFAULT false;

-- Listings ask for one entity in the order of time; an index over arrays gives no order. The visibility map must be
-- nearly complete, or counting reads the table.
DROP INDEX journal_entities;
DROP INDEX journal_actor;
DROP INDEX journal_domain;
CREATE INDEX journal_domain_time ON journal (domain_key, occurred_at, xid, seq);
CREATE INDEX journal_domain_operation ON journal (domain_key, operation, occurred_at, xid, seq);
CREATE INDEX journal_domain_position ON journal (domain_key, xid, seq);
ALTER TABLE journal SET (autovacuum_vacuum_insert_scale_factor = 0.02);

-- A record by each entity that it names, its actor included.
CREATE TABLE journal_subjects (
  entity_key bigint NOT NULL,
  occurred_at timestamptz NOT NULL,
  xid xid8 NOT NULL,
  seq bigint NOT NULL,
  operation text NOT NULL,
  CONSTRAINT journal_subjects_pkey PRIMARY KEY (entity_key, occurred_at, xid, seq) INCLUDE (operation)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.02);

-- A trigger and no statement of the program: records that an older node writes meanwhile are found too.
CREATE FUNCTION journal_note_subjects() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO journal_subjects (entity_key, occurred_at, xid, seq, operation)
  SELECT DISTINCT subject.key, added.occurred_at, added.xid, added.seq, added.operation
    FROM added, unnest(added.entity_keys || added.actor_key) AS subject (key)
   WHERE subject.key > 0;
  RETURN NULL;
END
$$;
CREATE TRIGGER journal_subjects_are_noted AFTER INSERT ON journal
  REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION journal_note_subjects();

INSERT INTO journal_subjects (entity_key, occurred_at, xid, seq, operation)
SELECT DISTINCT subject.key, j.occurred_at, j.xid, j.seq, j.operation
  FROM journal j, unnest(j.entity_keys || j.actor_key) AS subject (key)
 WHERE subject.key > 0;

-- How many records a domain has, and a user, by operation, up to the position of the consumer that counts them: to count
-- millions for each page would take seconds.
CREATE TABLE journal_totals (
  scope_key bigint NOT NULL,
  operation text NOT NULL,
  total bigint NOT NULL,
  CONSTRAINT journal_totals_pkey PRIMARY KEY (scope_key, operation)
);

-- Which key an id had that is gone: the journal of a deleted entity is asked for by its id, and who may know of the
-- deletion depends on the group that it was in.
CREATE TABLE departed_entities (
  key bigint CONSTRAINT departed_entities_pkey PRIMARY KEY,
  type text NOT NULL,
  -- NULL for users and domains.
  domain_key bigint,
  id uuid NOT NULL,
  parent_group_key bigint,
  departed_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX departed_entities_id ON departed_entities (id, type);
CREATE INDEX departed_entities_domain ON departed_entities (domain_key);
CREATE INDEX departed_entities_time ON departed_entities (departed_at);

CREATE FUNCTION journal_note_departed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_TABLE_NAME = 'users' THEN
    INSERT INTO departed_entities (key, type, id) SELECT key, 'user', id FROM gone;
  ELSIF TG_TABLE_NAME = 'domains' THEN
    DELETE FROM departed_entities d USING gone WHERE d.domain_key = gone.key;
    INSERT INTO departed_entities (key, type, id) SELECT key, 'domain', id FROM gone;
  ELSIF TG_TABLE_NAME = 'groups' THEN
    INSERT INTO departed_entities (key, type, domain_key, id, parent_group_key)
    SELECT key, 'group', domain_key, id, parent_key FROM gone
     WHERE EXISTS (SELECT FROM domains d WHERE d.key = gone.domain_key);
  ELSE
    INSERT INTO departed_entities (key, type, domain_key, id, parent_group_key)
    SELECT key, TG_ARGV[0], domain_key, id, parent_group_key FROM gone
     WHERE EXISTS (SELECT FROM domains d WHERE d.key = gone.domain_key);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER users_departed AFTER DELETE ON users
  REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION journal_note_departed();
CREATE TRIGGER domains_departed AFTER DELETE ON domains
  REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION journal_note_departed();
CREATE TRIGGER groups_departed AFTER DELETE ON groups
  REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION journal_note_departed();
CREATE TRIGGER clients_departed AFTER DELETE ON clients
  REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION journal_note_departed('client');
CREATE TRIGGER channels_departed AFTER DELETE ON channels
  REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION journal_note_departed('channel');
