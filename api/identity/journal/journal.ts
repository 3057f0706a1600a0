/**
 * The journal: every change of an entity is one row, written in the transaction of the change. It is also a changelog
 * for consumers (mechanisms: positions). `change` is the only way to change an entity: the change and its record commit
 * together, and the caches of this process are invalidated before the caller gets the response.
 */
import { randomBytes } from 'node:crypto'
import { setImmediate } from 'node:timers/promises'
import type { Bus } from '#core/bus/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { startLogTail } from '#core/changelog/index.ts'
import type { LogTail } from '#core/changelog/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { Check } from '#core/readiness/index.ts'
import { ANY_CHANGE, anyChangeIn } from '../access/any-change.ts'
import { startJournalCounts } from './counts.ts'
import { insertRecords } from './record.ts'
import type { Actor, JournalEntry } from './record.ts'
import { beginTrial, isTrial } from './trial.ts'

export type Recorder = (entry: JournalEntry) => void

/** Gets the keys of changed entities and the operations on them, of this process and others, possibly twice. */
export type ChangeListener = {
  invalidate: (entityKeys: readonly number[], operations: ReadonlySet<string>) => void
  invalidateAll: () => void
}

export type Journal = {
  /**
   * Runs the work in a transaction, writes its records in the same transaction, and notifies the listeners after the
   * commit. In a trial it is rolled back.
   */
  change<T>(actor: Actor, work: (tx: Transaction, record: Recorder) => Promise<T>): Promise<T>
  listen(listener: ChangeListener): void
  /** As `listen`, for operations of one family alone, also of one that no cache depends on. */
  follow(family: string, listener: ChangeListener): void
  /**
   * Calls the listener when the journal has grown, in this process or another. It is a hint that can be late, lost or
   * repeated. Returns a function that unsubscribes.
   */
  onGrowth(listener: () => void): () => void
  /** False while this process may have missed changes of others. Caches must not be used then. */
  isFresh(): boolean
  /** Checks for the readiness of the process: the database, and how far behind it the caches are. */
  readonly checks: readonly Check[]
  stop(): Promise<void>
}

/**
 * Operations that change nothing that a cache holds: observations, states, commands, rules and alarms, and changes of the manager, which has
 * caches of its own.
 */
const UNCACHED = /^(mqtt|client_state|command|rule|maintenance_window|alarm|task|workflow|worker|module)\./
/** Bus topic of the hint "the journal grew". */
const JOURNAL_TOPIC = 'skein.journal'
/** Each hint contains its sender, whose listeners were already notified. */
const MARK_BYTES = 16
/** A change of more entities ends with the turn of the event loop. */
const MANY_ENTITIES = 1000

/** Tells every process that the journal grew, after the commit of records that `Journal.change` did not write. */
export function hintJournal(bus: Bus): void {
  bus.publish(JOURNAL_TOPIC, Buffer.alloc(0))
}

export async function startJournal(options: {
  database: Database
  bus: Bus
  logger: Logger
  tailIntervalMs?: number
}): Promise<Journal> {
  const { database, bus, logger, tailIntervalMs } = options
  const listeners: ChangeListener[] = []
  const followers = new Map<string, ChangeListener[]>()
  const announce = (records: readonly Pick<JournalEntry, 'operation' | 'domainKey' | 'entityKeys'>[]) => {
    if (followers.size > 0) tellFollowers(records)
    const changes = records.filter(({ operation }) => !UNCACHED.test(operation))
    if (changes.length === 0) return
    const keys = new Set([ANY_CHANGE])
    for (const { domainKey, entityKeys } of changes) {
      for (const key of entityKeys) keys.add(key)
      if (domainKey !== undefined) keys.add(anyChangeIn(domainKey))
    }
    const operations = new Set(changes.map(({ operation }) => operation))
    for (const listener of listeners) listener.invalidate([...keys], operations)
  }
  function tellFollowers(records: readonly Pick<JournalEntry, 'operation' | 'entityKeys'>[]): void {
    for (const [family, following] of followers) {
      const own = records.filter(({ operation }) => operation.startsWith(`${family}.`))
      if (own.length === 0) continue
      const keys = [...new Set(own.flatMap(({ entityKeys }) => entityKeys))]
      const operations = new Set(own.map(({ operation }) => operation))
      for (const listener of following) listener.invalidate(keys, operations)
    }
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
      for (const listener of [...listeners, ...[...followers.values()].flat()]) listener.invalidateAll()
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
        const endTrial = isTrial() ? await beginTrial(tx, actor) : undefined
        const value = await work(tx, (entry) => entries.push(entry))
        if (endTrial !== undefined) return await endTrial(entries)
        // The records commit together with the changes, whichever of the two fails.
        tx.defer(
          insertRecords(
            tx,
            entries.map((entry) => ({ actor, entry })),
          ),
        )
        return value
      })
      if (entries.length > 0) {
        announce(entries)
        bus.publish(JOURNAL_TOPIC, mark)
      }
      // Listeners have looked at each of the entities: the caller goes on in a turn of its own.
      if (entries.some(({ entityKeys }) => entityKeys.length > MANY_ENTITIES)) await setImmediate()
      return result
    },
    listen: (listener) => void listeners.push(listener),
    follow: (family, listener) => void followers.set(family, [...(followers.get(family) ?? []), listener]),
    onGrowth: (listener) => bus.subscribe(JOURNAL_TOPIC, listener),
    isFresh: () => tail.isFresh(),
    checks: [
      {
        name: 'database',
        isRequired: true,
        read: () => (tail.staleBecause() === 'database' ? 'the database does not answer' : undefined),
      },
      {
        name: 'changelog',
        isRequired: true,
        read: () =>
          tail.staleBecause() === undefined
            ? undefined
            : 'changes of other processes may be unknown here, so no permission can be checked',
      },
    ],
    async stop() {
      unsubscribe()
      await Promise.all(counts.map((follower) => follower.stop()))
      await tail.stop()
    },
  }
}
