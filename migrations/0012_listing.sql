-- expand: an index for every order of a listing, with what a page is looked for by in it

-- A page is found in the index alone and then fetched: a row that is skipped costs no visit to the table. A column that
-- an expression is made of has to be in the index too, or PostgreSQL visits the table to compute it again.
CREATE INDEX clients_page ON clients (domain_key, status, coalesce(updated_at, created_at), created_at, id)
  INCLUDE (key, updated_at, parent_group_key);
CREATE INDEX clients_page_any_status ON clients (domain_key, coalesce(updated_at, created_at), created_at, id)
  INCLUDE (key, updated_at, status, parent_group_key);
CREATE INDEX clients_page_created ON clients (domain_key, created_at, id) INCLUDE (key, status, parent_group_key);
-- An index entry has at most 2,704 bytes, a name up to 4,096.
CREATE INDEX clients_page_name ON clients (domain_key, left(name, 256), created_at, id);
DROP INDEX clients_order;
DROP INDEX clients_created;

CREATE INDEX channels_page ON channels (domain_key, status, coalesce(updated_at, created_at), created_at, id)
  INCLUDE (key, updated_at, parent_group_key);
CREATE INDEX channels_page_any_status ON channels (domain_key, coalesce(updated_at, created_at), created_at, id)
  INCLUDE (key, updated_at, status, parent_group_key);
CREATE INDEX channels_page_created ON channels (domain_key, created_at, id) INCLUDE (key, status, parent_group_key);
CREATE INDEX channels_page_name ON channels (domain_key, left(name, 256), created_at, id);
DROP INDEX channels_order;
DROP INDEX channels_created;

CREATE INDEX groups_page_any_status ON groups (domain_key, coalesce(updated_at, created_at), created_at, id);
CREATE INDEX groups_page_name ON groups (domain_key, left(name, 256), created_at, id);
