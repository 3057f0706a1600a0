/** What tasks were refused outside of a request: counted with the task, and the first that needs a person in the journal. */
import { managedEntry } from '#api/identity/index.ts'
import type { Database, Queryable, Transaction } from '#core/database/index.ts'
import type { ServiceError } from '#core/errors/index.ts'
import { operationOf, recordRefusals } from '#queues/index.ts'
import type { FirstRefusal, TaskRefusal } from '#queues/index.ts'
import { writeRecords } from './journal.ts'

export async function writeRefusals(database: Database, refusals: readonly TaskRefusal[]): Promise<void> {
  if (refusals.length === 0) return
  await database.transaction(async (tx) => await recordIn(tx, refusals))
}

/** Writes the refusals in the transaction of the caller. */
export async function recordIn(tx: Queryable | Transaction, refusals: readonly TaskRefusal[]): Promise<void> {
  const firsts = await recordRefusals(tx, refusals)
  await writeRecords(
    tx,
    firsts.filter(({ needsAction }) => needsAction).map((first) => ({ actor: 'system', entry: entryOf(first) })),
  )
}

function entryOf({ source, reason, ...task }: FirstRefusal) {
  return managedEntry(task, { type: 'task', change: operationOf({ source }), attributes: { source, reason } })
}

/**
 * Whether the refusal of a start stays until a person changes something: not that the task is still running, nor what a retry may
 * overcome.
 */
export function needsAction({ kind }: ServiceError): boolean {
  return !['invalid_state', 'unavailable', 'timeout', 'rate_limited'].includes(kind)
}
