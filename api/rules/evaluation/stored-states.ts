/** Stores what an evaluation changed in the states of rules. */
import type { Transaction } from '#core/database/index.ts'
import { dueOf, isIdle } from './evaluation.ts'
import type { Evaluation } from './evaluation.ts'
import { removeStates, writeStates } from './repository.ts'

export async function storeStates(tx: Transaction, evaluation: Evaluation): Promise<void> {
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
