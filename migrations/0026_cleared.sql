-- expand: retained messages that were cleared, as followers who were away are told of it

-- Channels of which an empty message cleared something that was retained; it lies in `envelopes` alone. NULL: none.
ALTER TABLE ingest_batches ADD COLUMN cleared_channels bigint[];
CREATE INDEX ingest_batches_cleared_idx ON ingest_batches (xid, seq) WHERE cleared_channels IS NOT NULL;
