-- expand: a page of tasks, however far, is found without reading the tasks before it
-- The key is what a page needs of a row. An index is not read alone unless it also has the columns of its expression.
DROP INDEX tasks_of_domain;
DROP INDEX tasks_of_no_domain;
CREATE INDEX tasks_of_domain ON tasks (domain_key, coalesce(updated_at, created_at), created_at, id) INCLUDE (key, updated_at)
  WHERE domain_key IS NOT NULL;
CREATE INDEX tasks_of_no_domain ON tasks (coalesce(updated_at, created_at), created_at, id) INCLUDE (key, updated_at)
  WHERE domain_key IS NULL;
