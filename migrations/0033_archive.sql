-- expand: a copy of records in files of other engines (Apache Iceberg): which ranges are in it, its files, and the current metadata of each table
CREATE TABLE archive_tables (
  domain_key bigint NOT NULL,
  table_id uuid NOT NULL,
  location text NOT NULL,
  sequence_number bigint NOT NULL DEFAULT 0,
  snapshot_id bigint,
  metadata_path text,
  metadata json,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz,
  CONSTRAINT archive_tables_pkey PRIMARY KEY (domain_key),
  CONSTRAINT archive_tables_metadata_check CHECK (num_nulls(snapshot_id, metadata_path, metadata, updated_at) IN (0, 4))
);
COMMENT ON TABLE archive_tables IS 'The Iceberg table of the records of a domain: the pointer of the catalogue. No reference to the domain: its files are removed after it.';
COMMENT ON COLUMN archive_tables.domain_key IS 'The domain.';
COMMENT ON COLUMN archive_tables.table_id IS 'Id of the table in its metadata.';
COMMENT ON COLUMN archive_tables.location IS 'URL of the folder of its files.';
COMMENT ON COLUMN archive_tables.sequence_number IS 'Number of the last snapshot. A commit names the one that it follows, so that two writers cannot both commit.';
COMMENT ON COLUMN archive_tables.snapshot_id IS 'Id of the current snapshot; NULL: nothing was exported yet.';
COMMENT ON COLUMN archive_tables.metadata_path IS 'URL of the current metadata file; NULL: none.';
COMMENT ON COLUMN archive_tables.metadata IS 'Its content; NULL: none.';
COMMENT ON COLUMN archive_tables.created_at IS 'When the table was created.';
COMMENT ON COLUMN archive_tables.updated_at IS 'When it was last committed; NULL: never.';

CREATE TABLE archive_plans (
  retention_days smallint NOT NULL,
  range_start timestamptz NOT NULL,
  range_end timestamptz NOT NULL,
  planned_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT archive_plans_pkey PRIMARY KEY (retention_days, range_start)
);
COMMENT ON TABLE archive_plans IS 'Closed ranges of arrival of which each domain with records has its row in archive_ranges.';
COMMENT ON COLUMN archive_plans.retention_days IS 'Retention class in days; 0: unlimited.';
COMMENT ON COLUMN archive_plans.range_start IS 'Begin of the range, included.';
COMMENT ON COLUMN archive_plans.range_end IS 'End of the range, excluded.';
COMMENT ON COLUMN archive_plans.planned_at IS 'When its domains were found.';

CREATE TABLE archive_ranges (
  domain_key bigint NOT NULL,
  retention_days smallint NOT NULL,
  range_start timestamptz NOT NULL,
  range_end timestamptz NOT NULL,
  changes bigint NOT NULL DEFAULT 0,
  exported_changes bigint,
  exported_at timestamptz,
  records bigint NOT NULL DEFAULT 0,
  channel_keys bigint[] NOT NULL DEFAULT '{}',
  due_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT archive_ranges_pkey PRIMARY KEY (domain_key, retention_days, range_start)
);
COMMENT ON TABLE archive_ranges IS 'Closed ranges of arrival of a domain. A range whose records changed after its export is exported again.';
COMMENT ON COLUMN archive_ranges.domain_key IS 'The domain.';
COMMENT ON COLUMN archive_ranges.retention_days IS 'Retention class in days; 0: unlimited.';
COMMENT ON COLUMN archive_ranges.range_start IS 'Begin of the range, included.';
COMMENT ON COLUMN archive_ranges.range_end IS 'End of the range, excluded. A range lies in one month and in one week.';
COMMENT ON COLUMN archive_ranges.changes IS 'Number of changes of its records since it was planned, such as deletions; each is counted in its own transaction.';
COMMENT ON COLUMN archive_ranges.exported_changes IS 'The number of changes that the current files contain; NULL: it was not exported.';
COMMENT ON COLUMN archive_ranges.exported_at IS 'When it was last exported; NULL: never.';
COMMENT ON COLUMN archive_ranges.records IS 'Number of records in its files.';
COMMENT ON COLUMN archive_ranges.channel_keys IS 'Channels that have records in its files.';
COMMENT ON COLUMN archive_ranges.due_at IS 'Since when an export is due, if one is.';
CREATE INDEX archive_ranges_due ON archive_ranges USING btree (domain_key, range_start) WHERE exported_changes IS DISTINCT FROM changes;

CREATE TABLE archive_files (
  key bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  domain_key bigint NOT NULL,
  path text NOT NULL,
  kind text NOT NULL,
  state text NOT NULL DEFAULT 'writing',
  retention_days smallint,
  range_start timestamptz,
  month integer,
  bytes bigint NOT NULL DEFAULT 0,
  records bigint NOT NULL DEFAULT 0,
  snapshot_id bigint,
  sequence_number bigint,
  details json,
  created_at timestamptz NOT NULL DEFAULT now(),
  removed_at timestamptz,
  CONSTRAINT archive_files_pkey PRIMARY KEY (key),
  CONSTRAINT archive_files_path_key UNIQUE (path),
  CONSTRAINT archive_files_kind_check CHECK (kind IN ('data', 'manifest', 'manifest_list', 'metadata')),
  CONSTRAINT archive_files_state_check CHECK (state IN ('writing', 'live', 'removed')),
  CONSTRAINT archive_files_removed_check CHECK ((removed_at IS NULL) = (state <> 'removed'))
);
COMMENT ON TABLE archive_files IS 'Files of the archive. A row is committed before its file is written and deleted after its file is, so that no file is unknown.';
COMMENT ON COLUMN archive_files.key IS 'Internal key.';
COMMENT ON COLUMN archive_files.domain_key IS 'The domain, which may be removed.';
COMMENT ON COLUMN archive_files.path IS 'URL of the file.';
COMMENT ON COLUMN archive_files.kind IS 'data, manifest, manifest_list or metadata.';
COMMENT ON COLUMN archive_files.state IS 'writing: no snapshot refers to it yet; live: the current one does; removed: only earlier ones do, and it is deleted after a day.';
COMMENT ON COLUMN archive_files.retention_days IS 'Retention class of a data file; NULL: another kind.';
COMMENT ON COLUMN archive_files.range_start IS 'Begin of the range of a data file; NULL: another kind.';
COMMENT ON COLUMN archive_files.month IS 'Month of arrival of a data file or a manifest, counted from January 1970; NULL: another kind.';
COMMENT ON COLUMN archive_files.bytes IS 'Size of the file; 0: it was not written completely.';
COMMENT ON COLUMN archive_files.records IS 'Number of records of a data file or a manifest.';
COMMENT ON COLUMN archive_files.snapshot_id IS 'Snapshot that added it; NULL: none did.';
COMMENT ON COLUMN archive_files.sequence_number IS 'Number of that snapshot; NULL: none did.';
COMMENT ON COLUMN archive_files.details IS 'What manifests say of a data file, or the manifest list of a manifest; NULL: nothing.';
COMMENT ON COLUMN archive_files.created_at IS 'When the row was written.';
COMMENT ON COLUMN archive_files.removed_at IS 'When the current snapshot ceased to refer to it; NULL: it did not.';
CREATE INDEX archive_files_table ON archive_files USING btree (domain_key, month) WHERE state = 'live';
CREATE INDEX archive_files_writing ON archive_files USING btree (created_at) WHERE state = 'writing';
CREATE INDEX archive_files_removed ON archive_files USING btree (removed_at) WHERE state = 'removed';
