/** Stores what an evaluation changed and caused. */
import type { Recorder } from '#api/identity/index.ts'
import type { Transaction } from '#core/database/index.ts'
import type { Contacts } from '../contacts.ts'
import type { Collected } from './collected.ts'
import { dueOf, isIdle } from './evaluation.ts'
import type { Evaluation } from './evaluation.ts'
import { removeStates, writeStates } from './repository.ts'
import type { TellingDeps } from './telling.ts'

async function storeStates(tx: Transaction, evaluation: Evaluation): Promise<void> {
  const changed = [...evaluation.states].filter(({ isChanged }) => isChanged)
  const [gone, left] = [changed.filter(isIdle), changed.filter((entry) => !isIdle(entry))]
  await removeStates(
    tx,
    gone.filter(({ isStored }) => isStored).map(({ rule, series }) => ({ ruleKey: rule.key, series })),
  )
  await writeStates(
    tx,
    left.map((entry) => ({
      ruleKey: entry.rule.key,
      series: entry.series,
      state: entry.state,
      last: entry.last,
      dueMs: dueOf(entry),
      silencedUntilMs: entry.silencedUntilMs,
      escalation: entry.escalation,
      escalateAtMs: entry.escalateAtMs,
    })),
  )
}

export type CausedDeps = Omit<TellingDeps, 'domainKey'> & {
  maxOpen: number | undefined
  contacts: Pick<Contacts, 'record'>
}

/**
 * Decides who is notified, stores what was caused, and then the states: an alarm is silenced by its state, and one without room is not
 * escalated.
 */
export async function storeEvaluation(
  tx: Transaction,
  record: Recorder,
  { evaluation, collected }: { evaluation: Evaluation; collected: Collected },
  { maxOpen, contacts, ...telling }: CausedDeps,
): Promise<{ published: boolean; started: boolean; notified: boolean }> {
  const notifications = await collected.settle(tx, record, telling)
  const outcome = await collected.store(tx, record, { evaluation, maxOpen, contacts, notifications })
  await storeStates(tx, evaluation)
  return outcome
}
