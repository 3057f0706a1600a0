-- expand: a page in the middle of an order by name fetched every row that it passed

-- Names are sorted by their first 256 characters. A name of no more is a column of its index, which then has all that a
-- page is found by; the few that are longer, which an index cannot hold, have one of their own.
CREATE INDEX clients_page_short_name ON clients (domain_key, name, created_at, id)
  INCLUDE (key, status, parent_group_key) WHERE char_length(name) <= 256;
CREATE INDEX clients_page_long_name ON clients (domain_key, "left"(name, 256), created_at, id) WHERE char_length(name) > 256;
CREATE INDEX channels_page_short_name ON channels (domain_key, name, created_at, id)
  INCLUDE (key, status, parent_group_key) WHERE char_length(name) <= 256;
CREATE INDEX channels_page_long_name ON channels (domain_key, "left"(name, 256), created_at, id) WHERE char_length(name) > 256;
CREATE INDEX groups_page_short_name ON groups (domain_key, name, created_at, id)
  INCLUDE (key, status) WHERE char_length(name) <= 256;
CREATE INDEX groups_page_long_name ON groups (domain_key, "left"(name, 256), created_at, id) WHERE char_length(name) > 256;
