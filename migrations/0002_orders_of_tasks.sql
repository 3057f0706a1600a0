-- expand: a page of tasks is read from an index in its order
-- Every task is in one of the two. The older index had the domain alone.
CREATE INDEX tasks_of_domain ON tasks (domain_key, coalesce(updated_at, created_at), created_at, id) WHERE domain_key IS NOT NULL;
CREATE INDEX tasks_of_no_domain ON tasks (coalesce(updated_at, created_at), created_at, id) WHERE domain_key IS NULL;
DROP INDEX tasks_domain;
