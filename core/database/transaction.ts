/** One transaction from BEGIN to its end, and the error that it fails with. */
import type pg from 'pg'
import { withConnection } from './driver.ts'
import type { Connection } from './driver.ts'
import { isConsequence, isRepeatable, translateDatabaseError } from './errors.ts'
import { DATABASE_METRICS } from './metrics.ts'
import type { QueryResult, Queryable, Statement } from '../sql.ts'
import { monotonicMs } from '../time.ts'

/** Attempts at a transaction that PostgreSQL asks to repeat. */
const TRANSACTION_ATTEMPTS = 4

/** Statements are sent at once, before earlier ones are answered: PostgreSQL keeps their order. */
export class Transaction implements Queryable {
  readonly #connection: Connection
  readonly #deferred: Promise<unknown>[] = []
  #isOpen = true

  constructor(connection: Connection) {
    this.#connection = connection
  }

  async query<Row>(statement: Statement): Promise<QueryResult<Row>> {
    if (!this.#isOpen) throw new Error('the transaction of this statement has ended')
    return await this.#connection.query<Row>(statement)
  }

  /** Rejects further statements. */
  close(): void {
    this.#isOpen = false
  }

  /**
   * Allows COMMIT to be sent before this statement is answered. No other part of the work may depend on it. If it fails, the
   * transaction fails with its error.
   */
  defer(answer: Promise<unknown>): void {
    answer.catch(() => undefined)
    this.#deferred.push(answer)
  }

  /** The errors of the deferred statements, when all of them are answered. */
  async failuresOfDeferred(): Promise<unknown[]> {
    const settled = await Promise.allSettled(this.#deferred)
    return settled.filter((one) => one.status === 'rejected').map(({ reason }) => reason as unknown)
  }
}

/** Repeats the transaction after a deadlock or a serialization failure. */
export async function runTransaction<T>(pool: pg.Pool, work: (tx: Transaction) => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    const outcome = await attemptTransaction(pool, work)
    if ('value' in outcome) return outcome.value
    if (attempt < TRANSACTION_ATTEMPTS && isRepeatable(outcome.error)) {
      DATABASE_METRICS.repeats.add({})
      continue
    }
    throw translateDatabaseError(outcome.error)
  }
}

async function attemptTransaction<T>(
  pool: pg.Pool,
  work: (tx: Transaction) => Promise<T>,
): Promise<{ value: T } | { error: unknown }> {
  let tx: Transaction | undefined
  /** The errors of the work, then of deferred statements. */
  const failures: unknown[] = []
  /** The reasons why the transaction did not end. A rollback on a broken connection fails too and must not hide it. */
  const unended: unknown[] = []
  const outcome = await withConnection(pool, async (connection) => {
    const transaction = (tx = new Transaction(connection))
    const beganMs = monotonicMs()
    const observe = (outcome: string) =>
      DATABASE_METRICS.transactionTime.observe({ outcome }, (monotonicMs() - beganMs) / 1000)
    connection.begin()
    try {
      const value = await worked(transaction, work, failures)
      await connection.commit()
      observe('committed')
      return { value }
    } catch (error) {
      observe('failed')
      unended.push(error)
      await connection.rollback()
      throw error
    }
  }).catch((error: unknown) => ({ error }))
  failures.push(...((await tx?.failuresOfDeferred()) ?? []))
  failures.push(...unended)
  if ('error' in outcome) return { error: failures.find((failure) => !isConsequence(failure)) ?? outcome.error }
  if (failures.length > 0)
    return { error: new Error('a statement was deferred before it was sent', { cause: failures[0] }) }
  return outcome
}

/** Runs the work, then closes the transaction: later statements would run outside of it. */
async function worked<T>(tx: Transaction, work: (tx: Transaction) => Promise<T>, failures: unknown[]): Promise<T> {
  try {
    return await work(tx)
  } catch (error) {
    failures.push(error)
    throw error
  } finally {
    tx.close()
  }
}
