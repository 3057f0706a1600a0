-- expand: listings of what somebody created (`visibility`, `ownerID`) looked at every row of a domain

CREATE INDEX clients_created_by ON clients (domain_key, created_by, status);
CREATE INDEX channels_created_by ON channels (domain_key, created_by, status);
CREATE INDEX groups_created_by ON groups (domain_key, created_by, status);
