/** Hands matches to the queues of their tasks. */
import type { FullDomains } from '#api/identity/index.ts'
import { placeOf } from '#api/messages/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { handMatches, readTriggerRules, storeTriggerPlace } from '#queues/index.ts'
import type { StoredTriggerRule } from '#queues/index.ts'
import type { Match } from './matches.ts'

/** Whether messages wait in their channel because the domain has as many in its queues as it may. With debounce, one message replaces the others. */
export const waitsForRoom = ({ domainKey, debounceMs }: StoredTriggerRule, fullDomains: FullDomains): boolean =>
  debounceMs === null && fullDomains.has(domainKey)

/** Triggers whose queue has no room fall behind, at their first match that was not handed out. Returns whether any did. */
export async function handToTriggers(
  tx: Transaction,
  matches: readonly Match[],
  fullDomains: FullDomains,
): Promise<boolean> {
  const byTask = Map.groupBy(matches, ({ taskKey }) => taskKey)
  const rules = await readTriggerRules(tx, [...byTask.keys()])
  const given = rules.map((rule) => ({ rule, matches: byTask.get(rule.taskKey) ?? [] }))
  const open = given.filter(({ rule }) => !waitsForRoom(rule, fullDomains))
  const counts = open.length === 0 ? [] : await handMatches(tx, open)
  const handled = new Map(open.map(({ rule }, index) => [rule.taskKey, counts[index] ?? 0]))
  let fell = false
  for (const { rule, matches: ofRule } of given) {
    const next = ofRule[handled.get(rule.taskKey) ?? 0]
    if (next === undefined) continue
    await storeTriggerPlace(tx, rule, placeOf(next.of))
    fell = true
  }
  return fell
}
