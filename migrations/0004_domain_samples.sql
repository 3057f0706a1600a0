-- expand: how many clients and workers were online is sampled, for the series of an overview
CREATE TABLE domain_samples (
  domain_key bigint CONSTRAINT domain_samples_domain_key_fkey REFERENCES domains (key) ON DELETE CASCADE,
  slot timestamptz NOT NULL,
  clients integer NOT NULL,
  workers integer NOT NULL,
  CONSTRAINT domain_samples_slot_key UNIQUE NULLS NOT DISTINCT (domain_key, slot)
);
COMMENT ON TABLE domain_samples IS 'Clients and workers that were online at one moment of each five minutes, kept for a little more than a day. The row without a domain says that the slot was sampled; a domain without a row in it had none of both.';
COMMENT ON COLUMN domain_samples.domain_key IS 'The domain; NULL: the platform, whose workers run tasks of all domains.';
COMMENT ON COLUMN domain_samples.slot IS 'Start of the five minutes.';
COMMENT ON COLUMN domain_samples.clients IS 'Number of clients with an open session; 0 for the platform.';
COMMENT ON COLUMN domain_samples.workers IS 'Number of own workers that were alive and took runs.';
CREATE INDEX domain_samples_age ON domain_samples (slot);
