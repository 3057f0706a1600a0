-- expand: how many records a domain and a user have of each day, so that a page of the journal far behind the first begins at its day

-- Up to the position of the consumer that counts them, in days of UTC.
CREATE TABLE journal_days (
  scope_key bigint NOT NULL,
  day date NOT NULL,
  operation text NOT NULL,
  total bigint NOT NULL,
  CONSTRAINT journal_days_pkey PRIMARY KEY (scope_key, day, operation)
);

-- A trigger and no statement of the program: an older node removes records too. None goes before every consumer has read it.
CREATE FUNCTION journal_uncount_days() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  MERGE INTO journal_days d USING (
    SELECT scope.key, (gone.occurred_at AT TIME ZONE 'UTC')::date AS day, gone.operation, count(*) AS total
      FROM gone CROSS JOIN LATERAL (
        SELECT DISTINCT key FROM unnest(gone.entity_keys || gone.actor_key || gone.domain_key) AS named (key)) scope
     GROUP BY 1, 2, 3) uncounted
     ON d.scope_key = uncounted.key AND d.day = uncounted.day AND d.operation = uncounted.operation
   WHEN MATCHED AND d.total <= uncounted.total THEN DELETE
   WHEN MATCHED THEN UPDATE SET total = d.total - uncounted.total;
  RETURN NULL;
END
$$;
CREATE TRIGGER journal_days_are_uncounted AFTER DELETE ON journal
  REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION journal_uncount_days();
