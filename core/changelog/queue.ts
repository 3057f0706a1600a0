/**
 * Queues that are tables: what one process writes, another one takes. Whoever writes says so over the bus, and the reader
 * looks at once. A hint may be lost, and rows become due by themselves, so that the reader looks by itself too: often
 * while rows wait, less and less often while there is none.
 */
import type { Bus } from '../bus/index.ts'
import type { Database } from '../database/index.ts'
import { growingPauses, startRounds } from './rounds.ts'

/** However fast is written, rounds that find rows are this far apart: each costs some statements, and takes the more rows. */
const REST_MS = 25
/** The pause after a round that failed, at least. */
const RETRY_MS = 1_000
/** While there is no row, the longest pause is so many of the shortest. */
export const QUIET_TIMES = 10

const NOTHING = new Uint8Array()

/** Tells the readers of the queue, wherever they run, that rows were committed. Any rate is fine. */
export function hintQueue(bus: Bus, table: string): void {
  bus.publish(topicOf(table), NOTHING)
}

type QueueReaderOptions = {
  database: Database
  bus: Bus
  /** Name of the table, which has a column `due_at`; a constant of our code, never input. */
  table: string
  /** Takes rows that are due; true when there may be more to take at once. */
  take: () => Promise<boolean>
  /** The pause after a round while rows wait. */
  intervalMs: number
  onError: (error: unknown) => void
}

export function startQueueReader({ database, bus, table, take, intervalMs, onError }: QueueReaderOptions): {
  /** Resolves when the round that runs has ended; none follows. */
  stop(): Promise<void>
} {
  // Whether the first row is due: what a round costs while there is nothing to do. Planned once, and with the order its plan is the index.
  const first = {
    name: `first-of-${table}`,
    text: `SELECT due_at <= now() AS is_due FROM ${table} ORDER BY due_at LIMIT 1`,
    values: [],
  }
  const pauses = growingPauses(intervalMs, intervalMs * QUIET_TIMES)
  const rounds = startRounds(async () => {
    try {
      const { rows } = await database.db.query<{ is_due: boolean }>(first)
      if (rows[0]?.is_due === true && (await take())) return { pauseMs: 0, isPokable: true }
      // A row that waits for its time, or that another process has taken, may become due.
      const isEmpty = rows.length === 0
      return { pauseMs: pauses.next(isEmpty), isPokable: true, restMs: isEmpty ? 0 : REST_MS }
    } catch (error) {
      onError(error)
      return { pauseMs: Math.max(intervalMs, RETRY_MS), isPokable: false }
    }
  })
  const unsubscribe = bus.subscribe(topicOf(table), rounds.wake)
  return {
    async stop() {
      unsubscribe()
      await rounds.stop()
    },
  }
}

function topicOf(table: string): string {
  return `skein.queue.${table}`
}
