-- expand: a factory's pair of external id and key may exist in several domains, so that a creation in one domain tells nothing about another
ALTER TABLE bootstrap_configs DROP CONSTRAINT bootstrap_configs_external_key_key;
CREATE INDEX bootstrap_configs_pair ON bootstrap_configs (external_id, external_key_mac);
