/** With more processes, the connections to PostgreSQL become the limit: run several nodes then. */
export const MAX_PROCESSES = 8
