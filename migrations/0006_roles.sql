-- expand: a domain that goes finds its roles and grants without reading everybody's
CREATE INDEX roles_domain ON roles (domain_key);
CREATE INDEX grants_domain ON grants (domain_key, entity_type);
