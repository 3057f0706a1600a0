/**
 * Queues in tables: one process writes rows, another one processes them. The writer sends a hint over the bus, and the reader
 * reads at once. A hint may be lost and rows become due with time, so the reader polls too: often while rows wait, and less
 * often while the table is empty.
 */
import type { Bus } from '../bus/index.ts'
import type { Database } from '../database/index.ts'
import type { Statement } from '../sql.ts'
import { growingPauses, startRounds } from '../rounds.ts'

/** The minimum interval between rounds that find rows. A longer interval gives larger rounds and fewer statements. */
const MIN_PAUSE_MS = 25
/** The minimum pause after a failed round. */
const RETRY_MS = 1_000
/** While the table is empty, the pause grows up to this multiple of `intervalMs`. */
export const MAX_IDLE_FACTOR = 10

const NOTHING = new Uint8Array()

/** Tells the readers of the queue, in every process, that rows were committed. May be called at any rate. */
export function hintQueue(bus: Bus, table: string): void {
  bus.publish(topicOf(table), NOTHING)
}

type QueueReaderOptions = {
  database: Database
  bus: Bus
  /** Name of the table, which has a column `due_at`; a constant, never input. */
  table: string
  /** A cheap statement that returns a row while rows wait, in place of one over `due_at`. */
  first?: Statement
  /** Processes rows that are due; true when more may be due. */
  take: () => Promise<boolean>
  /** The pause after a round while rows wait. */
  intervalMs: number
  onError: (error: unknown) => void
}

export function startQueueReader({ database, bus, table, take, intervalMs, onError, ...given }: QueueReaderOptions): {
  /** Begins a round, as a hint does. */
  wake(): void
  /** Resolves when the current round has ended. No other round starts. */
  stop(): Promise<void>
} {
  // Reads only whether the first row is due: the cost of an idle round. Planned once; the ORDER BY selects the index.
  const first = given.first ?? {
    name: `first-of-${table}`,
    // Dead letters are due at infinity.
    text: `SELECT due_at <= now() AS is_due FROM ${table} WHERE due_at < 'infinity' ORDER BY due_at LIMIT 1`,
    values: [],
  }
  const pauses = growingPauses(intervalMs, intervalMs * MAX_IDLE_FACTOR)
  const rounds = startRounds(async () => {
    try {
      const { rows } = await database.db.query<{ is_due: boolean }>(first)
      if (rows[0]?.is_due === true && (await take())) return { pauseMs: 0, isWakeable: true }
      // Rows that are not yet due, or that another process has locked, may become due.
      const isEmpty = rows.length === 0
      return { pauseMs: pauses.next(isEmpty), isWakeable: true, minPauseMs: isEmpty ? 0 : MIN_PAUSE_MS }
    } catch (error) {
      onError(error)
      return { pauseMs: Math.max(intervalMs, RETRY_MS), isWakeable: false }
    }
  })
  const unsubscribe = bus.subscribe(topicOf(table), rounds.wake)
  return {
    wake: rounds.wake,
    async stop() {
      unsubscribe()
      await rounds.stop()
    },
  }
}

function topicOf(table: string): string {
  return `skein.queue.${table}`
}
