-- expand: rollups, so that totals and aggregates need not read every record

-- What the records of a series come to in a quarter of an hour; series 0 stands for the whole channel and has counts
-- alone. A projection: it holds the folded batches, and whoever reads adds the others (ingest_batches.folded) himself.
-- Divided as the records are, so that retention drops both alike.
CREATE TABLE rollups (
  channel_key bigint NOT NULL,
  series_key bigint NOT NULL,
  -- Beginning of the quarter of an hour in which the records' own times lie.
  bucket timestamptz NOT NULL,
  -- Beginning of the partition of their arrival.
  arrived_on timestamptz NOT NULL,
  retention_days smallint NOT NULL,
  -- The lowest number among them.
  protocol smallint NOT NULL,
  records bigint NOT NULL,
  -- Of those that have a numeric value.
  value_count bigint NOT NULL,
  min_value double precision,
  max_value double precision,
  -- Of the values as their shortest decimals: exact, so that it does not depend on the order in which batches came.
  value_sum numeric,
  CONSTRAINT rollups_pkey PRIMARY KEY (channel_key, series_key, bucket, retention_days, arrived_on)
) PARTITION BY LIST (retention_days);

CREATE TABLE rollups_r7 PARTITION OF rollups FOR VALUES IN (7) PARTITION BY RANGE (arrived_on);
CREATE TABLE rollups_r30 PARTITION OF rollups FOR VALUES IN (30) PARTITION BY RANGE (arrived_on);
CREATE TABLE rollups_r90 PARTITION OF rollups FOR VALUES IN (90) PARTITION BY RANGE (arrived_on);
CREATE TABLE rollups_r365 PARTITION OF rollups FOR VALUES IN (365) PARTITION BY RANGE (arrived_on);
CREATE TABLE rollups_r3650 PARTITION OF rollups FOR VALUES IN (3650) PARTITION BY RANGE (arrived_on);
CREATE TABLE rollups_r0 PARTITION OF rollups FOR VALUES IN (0) PARTITION BY RANGE (arrived_on);

-- The length of a partition of a retention class.
CREATE FUNCTION message_partition_unit(retention_days integer) RETURNS text
LANGUAGE sql IMMUTABLE RETURN CASE WHEN retention_days BETWEEN 1 AND 90 THEN 'week' ELSE 'month' END;

-- Makes the partitions that arrivals from `from_time` to `until_time` need: weeks in the short classes, months in the
-- long ones. Call it under the maintenance lock. A new table is attached, not created as a partition, because ATTACH
-- lets writers go on. Returns how many were made.
CREATE OR REPLACE FUNCTION create_message_partitions(from_time timestamptz, until_time timestamptz) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
  parent text;
  days integer;
  unit text;
  lower_bound timestamp;
  partition text;
  made integer := 0;
BEGIN
  FOREACH parent IN ARRAY ARRAY['records', 'payloads', 'rollups'] LOOP
    FOREACH days IN ARRAY ARRAY[7, 30, 90, 365, 3650, 0] LOOP
      unit := message_partition_unit(days);
      lower_bound := date_trunc(unit, from_time AT TIME ZONE 'UTC');
      WHILE lower_bound <= until_time AT TIME ZONE 'UTC' LOOP
        partition := format('%s_r%s_%s', parent, days, to_char(lower_bound, 'YYYYMMDD'));
        IF to_regclass(partition) IS NULL THEN
          EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', partition, parent);
          EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent || '_r' || days, partition,
            lower_bound AT TIME ZONE 'UTC', (lower_bound + ('1 ' || unit)::interval) AT TIME ZONE 'UTC');
          made := made + 1;
        END IF;
        lower_bound := lower_bound + ('1 ' || unit)::interval;
      END LOOP;
    END LOOP;
  END LOOP;
  RETURN made;
END $$;

SELECT create_message_partitions(coalesce((SELECT min(arrived_at) FROM ingest_batches), now()), now());
