/** One transaction from BEGIN to its end, and which of its failures is the reason. */
import type pg from 'pg'
import { withConnection } from './driver.ts'
import type { Connection } from './driver.ts'
import { isConsequence, isRepeatable, translateDatabaseError } from './errors.ts'
import type { QueryResult, Queryable, Statement } from '../sql.ts'

/** Attempts at a transaction that PostgreSQL asks to repeat. */
const TRANSACTION_ATTEMPTS = 4

/** Its statements leave when they are asked for, before those ahead of them are answered: PostgreSQL keeps their order. */
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

  /** Nothing is sent from here on. */
  close(): void {
    this.#isOpen = false
  }

  /**
   * Lets the transaction commit behind a statement that was sent without waiting for its answer, on which nothing else of the work
   * depends. If it fails, so does the transaction, with this error.
   */
  defer(answer: Promise<unknown>): void {
    answer.catch(() => undefined)
    this.#deferred.push(answer)
  }

  /** What failed of the deferred, once all of it is answered. */
  async failuresOfDeferred(): Promise<unknown[]> {
    const settled = await Promise.allSettled(this.#deferred)
    return settled.filter((one) => one.status === 'rejected').map(({ reason }) => reason as unknown)
  }
}

/** A deadlock or a serialisation failure is repeated. */
export async function runTransaction<T>(pool: pg.Pool, work: (tx: Transaction) => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    const outcome = await attemptTransaction(pool, work)
    if ('value' in outcome) return outcome.value
    if (attempt < TRANSACTION_ATTEMPTS && isRepeatable(outcome.error)) continue
    throw translateDatabaseError(outcome.error)
  }
}

async function attemptTransaction<T>(
  pool: pg.Pool,
  work: (tx: Transaction) => Promise<T>,
): Promise<{ value: T } | { error: unknown }> {
  let tx: Transaction | undefined
  /** Of the work, then of what was deferred: a rollback on a broken connection fails too, and its error would hide the reason. */
  const failures: unknown[] = []
  const outcome = await withConnection(pool, async (connection) => {
    const transaction = (tx = new Transaction(connection))
    connection.begin()
    try {
      const value = await worked(transaction, work, failures)
      await connection.commit()
      return { value }
    } catch (error) {
      await connection.rollback()
      throw error
    }
  }).catch((error: unknown) => ({ error }))
  failures.push(...((await tx?.failuresOfDeferred()) ?? []))
  if ('error' in outcome) return { error: failures.find((failure) => !isConsequence(failure)) ?? outcome.error }
  if (failures.length > 0)
    return { error: new Error('a statement was deferred before it was sent', { cause: failures[0] }) }
  return outcome
}

/** The work and nothing after it: what comes later would be written outside of the transaction. */
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
