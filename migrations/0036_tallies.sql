-- expand: what the folder adds up is kept in few rows until it is merged into rollups and newest records

-- A round rewrote a row of `rollups` and one of `latest_records` for each series that had sent anything, every few seconds the same
-- ones. Here a folder keeps what it added up since it last wrote there, a row for some dozens of series, and writes it anew with each
-- round. A projection as those two are: whoever reads adds these rows to theirs.
CREATE TABLE tallies (
  -- Whose it is: one folder adds to a row and takes it away, or somebody who merges all of them.
  folder uuid NOT NULL,
  channel_key bigint NOT NULL,
  -- The counts of the channel as a whole, as series 0 alone.
  is_total boolean NOT NULL,
  -- As in `rollups`.
  bucket timestamptz NOT NULL,
  retention_days smallint NOT NULL,
  arrived_on timestamptz NOT NULL,
  -- An element of each array for each series.
  series_keys bigint[] STORAGE PLAIN NOT NULL,
  protocols smallint[] STORAGE PLAIN NOT NULL,
  records integer[] STORAGE PLAIN NOT NULL,
  value_counts integer[] STORAGE PLAIN NOT NULL,
  min_values float8[] STORAGE PLAIN NOT NULL,
  max_values float8[] STORAGE PLAIN NOT NULL,
  -- The sum, where it is one of whole millionths and not too large; else in `value_sums`.
  millionths bigint[] STORAGE PLAIN NOT NULL,
  value_sums numeric[],
  -- The newest record of each, as in `latest_records`; times in microseconds since 2000. NULL in rows of totals.
  newest_micros bigint[] STORAGE PLAIN,
  newest_arrivals bigint[] STORAGE PLAIN,
  newest_batch_seqs bigint[] STORAGE PLAIN,
  newest_messages integer[] STORAGE PLAIN,
  newest_runs integer[] STORAGE PLAIN,
  newest_places integer[] STORAGE PLAIN,
  newest_protocols smallint[] STORAGE PLAIN,
  newest_values float8[] STORAGE PLAIN,
  -- NULL where no newest record has one.
  newest_sums float8[] STORAGE PLAIN,
  newest_update_times float8[] STORAGE PLAIN,
  newest_bools boolean[] STORAGE PLAIN,
  newest_strings text[],
  newest_data bytea[]
  -- A row of numbers fills half a page; what is longer goes elsewhere only where it must.
) WITH (toast_tuple_target = 8160);

CREATE INDEX tallies_channel_idx ON tallies (channel_key, is_total);
CREATE INDEX tallies_folder_idx ON tallies (folder);
