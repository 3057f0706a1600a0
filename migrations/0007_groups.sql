-- expand: groups

-- What clients and channels have for their listings.
CREATE INDEX groups_created ON groups (domain_key, created_at, id);
CREATE INDEX groups_name_trgm ON groups USING gin (name gin_trgm_ops);
CREATE INDEX groups_tags ON groups USING gin (tags);
CREATE INDEX groups_metadata ON groups USING gin (metadata jsonb_path_ops);
-- A path without a domain names a group by its id alone.
CREATE INDEX groups_id ON groups (id);
