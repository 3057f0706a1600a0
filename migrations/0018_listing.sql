-- expand: indexes that listings of very large domains need

-- What a member with thousands of grants reaches is found by its keys: in the index alone, with what a page is sorted by.
CREATE INDEX clients_reached ON clients (key)
  INCLUDE (domain_key, status, parent_group_key, updated_at, created_at, id);
CREATE INDEX channels_reached ON channels (key)
  INCLUDE (domain_key, status, parent_group_key, updated_at, created_at, id);

-- What lies in groups, without a visit to the table for each of it.
CREATE INDEX clients_in_group ON clients (parent_group_key) INCLUDE (key) WHERE parent_group_key IS NOT NULL;
DROP INDEX clients_parent_group;
CREATE INDEX channels_in_group ON channels (parent_group_key) INCLUDE (key) WHERE parent_group_key IS NOT NULL;
DROP INDEX channels_parent_group;
