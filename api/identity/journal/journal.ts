/**
 * The journal: every change of an entity is one row, written in the transaction of the change, and a log that others
 * follow (mechanisms: positions). Here is the only way to change something: the change and its record commit together,
 * and caches of this process forget before the caller gets its answer.
 */
import { randomBytes } from 'node:crypto'
import type { Bus } from '#core/bus/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { startLogTail } from '#core/changelog/index.ts'
import type { LogTail } from '#core/changelog/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { ANY_CHANGE, anyChangeIn } from '../access/any-change.ts'
import type { UserPrincipal } from '../access/principal.ts'
import { startJournalCounts } from './counts.ts'
import { insertRecords } from './record.ts'
import type { JournalEntry } from './record.ts'

/** Who did it: a user, or the product itself. */
export type Actor = UserPrincipal | 'system'

export type Recorder = (entry: JournalEntry) => void

/** Told about entities that changed, here or elsewhere; possibly twice. */
export type ChangeListener = { forget: (entityKeys: readonly number[]) => void; clear: () => void }

export type Journal = {
  /** Runs the work in a transaction, writes what it recorded into the same one, and tells the listeners after the commit. */
  change<T>(actor: Actor, work: (tx: Transaction, record: Recorder) => Promise<T>): Promise<T>
  listen(listener: ChangeListener): void
  /** Calls when the journal grew, here or elsewhere; a hint that may be late, lost or repeated. Returns the way to end it. */
  onGrowth(listener: () => void): () => void
  /** False while changes of other processes may be unknown here: caches must not answer. */
  isFresh(): boolean
  stop(): Promise<void>
}

/** What was seen to happen and changed no entity: whatever anybody remembers stays as true as it was. */
const OBSERVED = /^mqtt\./
/** Bus topic of the hint "the journal grew". */
const JOURNAL_TOPIC = 'skein.journal'
/** Each hint names its sender, whose listeners know already. */
const MARK_BYTES = 16

export async function startJournal(options: {
  database: Database
  bus: Bus
  logger: Logger
  tailIntervalMs?: number
}): Promise<Journal> {
  const { database, bus, logger, tailIntervalMs } = options
  const listeners: ChangeListener[] = []
  const announce = (records: readonly Pick<JournalEntry, 'operation' | 'domainKey' | 'entityKeys'>[]) => {
    const changes = records.filter(({ operation }) => !OBSERVED.test(operation))
    if (changes.length === 0) return
    const keys = new Set([ANY_CHANGE])
    for (const { domainKey, entityKeys } of changes) {
      for (const key of entityKeys) keys.add(key)
      if (domainKey !== undefined) keys.add(anyChangeIn(domainKey))
    }
    for (const listener of listeners) listener.forget([...keys])
  }
  const tail: LogTail = await startLogTail({
    database,
    logger,
    table: { name: 'journal', columns: ['operation', 'entity_keys', 'domain_key'] },
    onRows: (rows) => {
      announce(
        rows.map((row) => ({
          operation: row['operation'] as string,
          entityKeys: (row['entity_keys'] as (string | number)[]).map(Number),
          ...(row['domain_key'] === null ? {} : { domainKey: Number(row['domain_key']) }),
        })),
      )
    },
    onReset: () => {
      for (const listener of listeners) listener.clear()
    },
    ...(tailIntervalMs === undefined ? {} : { intervalMs: tailIntervalMs }),
  })
  const counts = [startJournalCounts({ database, logger }, 'totals'), startJournalCounts({ database, logger }, 'days')]
  const mark = randomBytes(MARK_BYTES)
  const unsubscribe = bus.subscribe(JOURNAL_TOPIC, (sender) => {
    if (!mark.equals(sender)) tail.wake()
  })

  return {
    async change(actor, work) {
      let entries: JournalEntry[] = []
      const result = await database.transaction(async (tx) => {
        entries = []
        const value = await work(tx, (entry) => entries.push(entry))
        // Committed together with what they tell of, whichever of the two fails.
        tx.defer(insertRecords(tx, actor, entries))
        return value
      })
      if (entries.length > 0) {
        announce(entries)
        bus.publish(JOURNAL_TOPIC, mark)
      }
      return result
    },
    listen: (listener) => void listeners.push(listener),
    onGrowth: (listener) => bus.subscribe(JOURNAL_TOPIC, listener),
    isFresh: () => tail.isFresh(),
    async stop() {
      unsubscribe()
      await Promise.all(counts.map((follower) => follower.stop()))
      await tail.stop()
    },
  }
}
