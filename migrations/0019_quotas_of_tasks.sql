-- expand: what a domain has of schedules and triggers is counted for its quotas
CREATE INDEX tasks_scheduled ON tasks (domain_key) WHERE schedule IS NOT NULL AND domain_key IS NOT NULL;
CREATE INDEX tasks_triggered_of_domain ON tasks (domain_key) WHERE trigger IS NOT NULL AND domain_key IS NOT NULL;
