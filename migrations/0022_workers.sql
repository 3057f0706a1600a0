-- expand: certificates and tokens of workers

-- Certificates that were issued to workers, by the SHA-256 of the certificate. A worker that has one shows it at every
-- TLS connection; without its row here a certificate counts for nothing.
CREATE TABLE worker_certificates (
  fingerprint text CONSTRAINT worker_certificates_pkey PRIMARY KEY,
  worker_key bigint NOT NULL CONSTRAINT worker_certificates_worker_fkey REFERENCES workers (key) ON DELETE CASCADE,
  issued_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL
);
CREATE INDEX worker_certificates_worker ON worker_certificates (worker_key);

-- Its owner took its rights away: only a join token brings it back, as another worker.
ALTER TABLE workers ADD COLUMN revoked_at timestamptz;

-- Tokens that were made over HTTP can be named.
ALTER TABLE worker_tokens
  ADD COLUMN id uuid CONSTRAINT worker_tokens_id_key UNIQUE,
  ADD COLUMN created_by uuid;
