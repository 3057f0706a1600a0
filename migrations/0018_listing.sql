-- expand: indexes that listings of very large domains need

-- What lies in groups, without a visit to the table for each of it.
CREATE INDEX clients_in_group ON clients (parent_group_key) INCLUDE (key) WHERE parent_group_key IS NOT NULL;
DROP INDEX clients_parent_group;
CREATE INDEX channels_in_group ON channels (parent_group_key) INCLUDE (key) WHERE parent_group_key IS NOT NULL;
DROP INDEX channels_parent_group;
