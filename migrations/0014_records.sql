-- contract: records of a message in one row, instead of a row each

-- A run: records of one message whose times lie in the same quarter of an hour (epoch divided by 900 s), at most 64 of
-- them, in the order in which they were sent. An element of each array is a record; an array that is NULL has no value
-- in it. One row, and one entry in each index, for ten records instead of ten: a sixth of the work and a third of the space.
CREATE TABLE records (
  channel_key bigint NOT NULL,
  -- Of the times below.
  min_time timestamptz NOT NULL,
  max_time timestamptz NOT NULL,
  -- The moment of the transaction, which is also that of the batch.
  arrived_at timestamptz NOT NULL DEFAULT now(),
  batch_seq bigint NOT NULL,
  -- Which message of the batch, and which run of the message.
  message integer NOT NULL,
  run integer NOT NULL,
  -- The retention class: days that the records are kept, 0 = for ever.
  retention_days smallint NOT NULL,
  -- 1 http, 2 mqtt, 3 coap, 4 ws, 5 task
  protocol smallint NOT NULL,
  -- All of one publisher and subtopic, since they are of one message.
  series_keys bigint[] NOT NULL,
  times timestamptz[] NOT NULL,
  "values" double precision[],
  sums double precision[],
  update_times double precision[],
  bool_values boolean[],
  string_values text[],
  data_values bytea[]
) PARTITION BY LIST (retention_days);
-- The newest page walks the one, the oldest page the other. Ascending, because times mostly grow, and only so do splits
-- leave full pages behind.
CREATE INDEX records_channel_key_max_time_idx ON records (channel_key, max_time);
CREATE INDEX records_channel_key_min_time_idx ON records (channel_key, min_time);
-- Rows arrive in the order of their batches, so a block range index finds a batch at nearly no cost.
CREATE INDEX records_batch_seq_idx ON records USING brin (batch_seq) WITH (pages_per_range = 32, autosummarize = on);

CREATE TABLE records_r7 PARTITION OF records FOR VALUES IN (7) PARTITION BY RANGE (arrived_at);
CREATE TABLE records_r30 PARTITION OF records FOR VALUES IN (30) PARTITION BY RANGE (arrived_at);
CREATE TABLE records_r90 PARTITION OF records FOR VALUES IN (90) PARTITION BY RANGE (arrived_at);
CREATE TABLE records_r365 PARTITION OF records FOR VALUES IN (365) PARTITION BY RANGE (arrived_at);
CREATE TABLE records_r3650 PARTITION OF records FOR VALUES IN (3650) PARTITION BY RANGE (arrived_at);
CREATE TABLE records_r0 PARTITION OF records FOR VALUES IN (0) PARTITION BY RANGE (arrived_at);

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
  FOREACH parent IN ARRAY ARRAY['records', 'payloads'] LOOP
    FOREACH days IN ARRAY ARRAY[7, 30, 90, 365, 3650, 0] LOOP
      unit := CASE WHEN days BETWEEN 1 AND 90 THEN 'week' ELSE 'month' END;
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

-- What is stored already moves into runs, each into the partition of its arrival.
SELECT create_message_partitions(coalesce((SELECT min(arrived_at) FROM messages), now()), now());

INSERT INTO records (channel_key, min_time, max_time, arrived_at, batch_seq, message, run, retention_days, protocol,
                     series_keys, times, "values", sums, update_times, bool_values, string_values, data_values)
SELECT channel_key, min(time), max(time), arrived_at, batch_seq, message,
       row_number() OVER (PARTITION BY batch_seq, message ORDER BY quarter, part) - 1,
       retention_days, protocol,
       array_agg(series_key ORDER BY ordinal), array_agg(time ORDER BY ordinal),
       CASE WHEN count(value) > 0 THEN array_agg(value ORDER BY ordinal) END,
       CASE WHEN count(sum) > 0 THEN array_agg(sum ORDER BY ordinal) END,
       CASE WHEN count(update_time) > 0 THEN array_agg(update_time ORDER BY ordinal) END,
       CASE WHEN count(bool_value) > 0 THEN array_agg(bool_value ORDER BY ordinal) END,
       CASE WHEN count(string_value) > 0 THEN array_agg(string_value ORDER BY ordinal) END,
       CASE WHEN count(data_value) > 0 THEN array_agg(data_value ORDER BY ordinal) END
  FROM (SELECT *, floor(extract(epoch FROM time) / 900) AS quarter,
               (row_number() OVER (PARTITION BY batch_seq, message, floor(extract(epoch FROM time) / 900) ORDER BY ordinal) - 1) / 64 AS part
          FROM messages) placed
 GROUP BY channel_key, arrived_at, batch_seq, message, retention_days, protocol, quarter, part;

DROP TABLE messages;
