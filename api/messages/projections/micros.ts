/** SQL for times as microseconds since 2000, PostgreSQL's own representation. */
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'

const EPOCH = sql`timestamptz '2000-01-01 00:00Z'`

/** Microseconds since 2000 of a time, exactly. */
export function inMicros(time: Sql<unknown>): Sql<unknown> {
  return sql`(extract(epoch FROM ${time} - ${EPOCH}) * 1000000)::bigint`
}

/** The inverse; exact for integers that a double can represent. */
export function fromMicros(micros: Sql<unknown>): Sql<unknown> {
  return sql`${EPOCH} + ${micros} * interval '1 microsecond'`
}
