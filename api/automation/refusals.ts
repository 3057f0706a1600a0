/** Refusals of the platform to tasks. They are counted with the task, and the first that needs a person is in the journal. */
import { insertRecords, managedEntry } from '#api/identity/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { operationOf, recordRefusals } from '#queues/index.ts'
import type { TaskRefusal } from '#queues/index.ts'

/** Each refusal needs an action. There may be at most one for each task and source. */
export async function recordInJournal(
  tx: Transaction,
  refusals: readonly Omit<TaskRefusal, 'needsAction'>[],
): Promise<void> {
  const firsts = await recordRefusals(
    tx,
    refusals.map((refusal) => ({ ...refusal, needsAction: true })),
  )
  const records = firsts.map(({ source, reason, needsAction: _always, ...task }) => ({
    actor: 'system' as const,
    entry: managedEntry(task, { type: 'task', change: operationOf({ source }), attributes: { source, reason } }),
  }))
  // Nobody could read a record without a domain.
  await insertRecords(
    tx,
    records.filter(({ entry }) => entry.domainKey !== undefined),
  )
}
