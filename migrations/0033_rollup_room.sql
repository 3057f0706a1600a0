-- expand: room on the pages of rollups, so that adding to a row rewrites it in place

-- Rows of the present quarter of an hour are replaced every few seconds. Without room beside them each new version lies on another
-- page, and the index has an entry more: twice the log, and a table that grows until it is vacuumed.

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
          EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS) WITH (fillfactor = %s)', partition, parent,
            CASE parent WHEN 'rollups' THEN 50 ELSE 100 END);
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


DO $$
DECLARE
  leaf regclass;
BEGIN
  FOR leaf IN SELECT relid FROM pg_partition_tree('rollups') WHERE isleaf LOOP
    EXECUTE format('ALTER TABLE %s SET (fillfactor = 50)', leaf);
  END LOOP;
END $$;

ALTER TABLE latest_records SET (fillfactor = 45);
