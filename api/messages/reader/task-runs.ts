/** Names the runs of tasks that published the messages of a page: their batches say so, as long as they are kept. */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Envelope } from '../model/envelope.ts'
import { PROTOCOLS } from '../model/message.ts'
import type { LinkedRow } from './window.ts'

const TASK = PROTOCOLS.indexOf('task')

/** The rows, with their runs. Asks nothing unless a task published one of them. */
export async function withRuns<Row extends LinkedRow & { protocol: number }>(
  db: Queryable,
  rows: readonly Row[],
): Promise<readonly Row[]> {
  const published = rows.filter(({ protocol }) => protocol === TASK)
  if (published.length === 0) return rows
  const named = [...new Map(published.map((row) => [keyOf(row), row])).values()]
  const { rows: found } = await sql<{ batch_seq: number; message: number; run: Envelope['run'] }>`
    SELECT w.batch_seq, w.message, b.envelopes::json -> w.message::text -> 'run' AS run
      FROM unnest(${named.map(({ batch_seq: seq }) => seq)}::bigint[], ${named.map(({ message }) => message)}::int[]) AS w (batch_seq, message)
      JOIN ingest_batches b ON b.seq = w.batch_seq WHERE b.envelopes IS NOT NULL`.execute(db)
  const runs = new Map(found.map((row) => [keyOf(row), row.run]))
  return rows.map((row) => {
    const run = row.protocol === TASK ? runs.get(keyOf(row)) : undefined
    return run === undefined || run === null ? row : { ...row, run }
  })
}

const keyOf = ({ batch_seq: seq, message }: Pick<LinkedRow, 'batch_seq' | 'message'>) => `${seq}/${message}`
