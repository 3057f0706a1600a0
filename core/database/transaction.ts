/** One transaction from BEGIN to its end, what prepared statements know of it, and which of its failures is the reason. */
import type { DatabaseConnection } from 'kysely'
import type { Queryable, Transaction } from './connect.ts'
import { isConsequence, isRepeatable, translateDatabaseError } from './errors.ts'

type Running = {
  readonly connection: DatabaseConnection
  readonly deferred: Promise<unknown>[]
  isOpen: boolean
}

/** Attempts at a transaction that PostgreSQL asks to repeat. */
const TRANSACTION_ATTEMPTS = 4

const running = new WeakMap<Queryable, Running>()

/** Undefined: no transaction of ours, so that there is no order to keep. Throws when it has ended. */
export function connectionOf(db: Queryable): DatabaseConnection | undefined {
  const transaction = running.get(db)
  if (transaction?.isOpen === false) throw new Error('the transaction of this statement has ended')
  return transaction?.connection
}

/** What is read in one snapshot keeps its order too. Returns the end of it. */
export function enterSnapshot(db: Queryable, connection: DatabaseConnection): () => void {
  const snapshot: Running = { connection, deferred: [], isOpen: true }
  running.set(db, snapshot)
  return () => {
    snapshot.isOpen = false
  }
}

/**
 * Lets the transaction commit behind prepared statements that were sent without waiting for their answers, on which nothing
 * else of the work depends. If one fails, so does the transaction, with this error.
 */
export function defer(tx: Transaction, answer: Promise<unknown>): void {
  answer.catch(() => undefined)
  const transaction = running.get(tx)
  if (transaction === undefined) throw new Error('only the statements of a running transaction are deferred')
  transaction.deferred.push(answer)
}

/** A deadlock or a serialisation failure is repeated. */
export async function runTransaction<T>(db: Queryable, work: (tx: Transaction) => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    const outcome = await attemptTransaction(db, work)
    if ('value' in outcome) return outcome.value
    if (attempt < TRANSACTION_ATTEMPTS && isRepeatable(outcome.error)) continue
    throw translateDatabaseError(outcome.error)
  }
}

async function attemptTransaction<T>(
  db: Queryable,
  work: (tx: Transaction) => Promise<T>,
): Promise<{ value: T } | { error: unknown }> {
  let current: Running | undefined
  /** Of the work, then of what was deferred: a rollback on a broken connection fails too, and its error would hide the reason. */
  const failures: unknown[] = []
  const settle = async () => {
    const settled = await Promise.allSettled(current?.deferred ?? [])
    failures.push(...settled.filter((one) => one.status === 'rejected').map(({ reason }) => reason as unknown))
  }
  let value: T
  try {
    value = await db.transaction().execute(async (tx) => {
      const connection = await tx.getExecutor().provideConnection((its) => Promise.resolve(its))
      const transaction: Running = { connection, deferred: [], isOpen: true }
      current = transaction
      running.set(tx, transaction)
      try {
        return await work(tx)
      } catch (error) {
        failures.push(error)
        throw error
      } finally {
        transaction.isOpen = false
      }
    })
  } catch (last) {
    await settle()
    return { error: failures.find((failure) => !isConsequence(failure)) ?? last }
  }
  await settle()
  if (failures.length > 0)
    return { error: new Error('a statement was deferred before it was sent', { cause: failures[0] }) }
  return { value }
}
