-- expand: the newest record of every series, so that all of a channel are read in one call

-- A projection: of the folded batches, as the rollups are; whoever reads adds the others. Not divided as the records are:
-- the newest record of a series that goes with its partition is replaced before.
CREATE TABLE latest_records (
  channel_key bigint NOT NULL,
  series_key bigint NOT NULL,
  time timestamptz NOT NULL,
  -- Where it stands: the rest of the order of records of the same time.
  arrived_at timestamptz NOT NULL,
  batch_seq bigint NOT NULL,
  message integer NOT NULL,
  run integer NOT NULL,
  place bigint NOT NULL,
  retention_days smallint NOT NULL,
  protocol smallint NOT NULL,
  value double precision,
  sum double precision,
  update_time double precision,
  bool_value boolean,
  string_value text,
  data_value bytea,
  CONSTRAINT latest_records_pkey PRIMARY KEY (channel_key, series_key)
-- Rows are replaced all the time: room on their pages spares the index.
) WITH (fillfactor = 60);

INSERT INTO latest_records
SELECT DISTINCT ON (m.channel_key, r.series_key) m.channel_key, r.series_key, r.time, m.arrived_at, m.batch_seq, m.message, m.run,
       r.place, m.retention_days, m.protocol, r.value, r.sum, r.update_time, r.bool_value, r.string_value, r.data_value
  FROM records m CROSS JOIN LATERAL unnest(
         m.series_keys, m.times, m."values", m.sums, m.update_times, m.bool_values, m.string_values, m.data_values) WITH ORDINALITY
       AS r(series_key, time, value, sum, update_time, bool_value, string_value, data_value, place)
 WHERE m.batch_seq NOT IN (SELECT seq FROM ingest_batches WHERE NOT folded)
 ORDER BY m.channel_key, r.series_key, r.time DESC, m.arrived_at DESC, m.batch_seq DESC, m.message DESC, m.run, r.place;
