import { expect, test } from 'vitest'
import type { Transaction } from '#core/database/index.ts'
import { compileRule } from '../compile.ts'
import type { RuleState } from '../engine/index.ts'
import { Silencing } from '../maintenance/silencing.ts'
import { Evaluation } from './evaluation.ts'
import { settleTellings } from './telling.ts'
import type { Telling } from './telling.ts'

const ID = '9f0e2b9e-3f53-4c3b-a3a6-0d2ec0a1a001'

const rule = compileRule({
  key: 1,
  id: ID,
  name: 'rule',
  description: '',
  domainKey: 1,
  status: 'enabled',
  userKey: 1,
  isBehind: false,
  isPaused: false,
  isLooking: false,
  place: { xid: 1n, seq: 1, message: 0 },
  definition: { source: { type: 'state' }, condition: 'online', clear_for: '1s' },
})
const series = { publisherId: ID, channelKey: 0, subtopic: '', name: '' }
const ACTIVE: RuleState = { status: 'active', sinceMs: 1_000, cause: 'first', count: 1 }
const last = { cause: 'first', record: undefined, timeMs: 1_000, protocol: '' }

type Step = (evaluation: Evaluation) => void
const end: Step = (evaluation) => evaluation.rise(rule, series, { atMs: 9_000, cause: 'end' })
const begin: Step = (evaluation) => evaluation.fall(rule, series, { atMs: 20_000, last })

/** What contacts are told in the step in which the maintenance is over that the state was silenced by, and whether it is silenced then. */
async function toldOf(
  state: RuleState,
  steps: readonly Step[],
  how: 'pass' | 'leave' = 'pass',
): Promise<{ told: string[]; silencedUntilMs: unknown }> {
  const tellings: Telling[] = []
  const evaluation = new Evaluation((caused) => {
    const payload = { moment: caused.effect.kind }
    const notifications = [{ ruleKey: rule.key, contact: 'a', payload }]
    tellings.push({ caused, alarm: undefined, episode: undefined, notifications, acts: [] })
  })
  evaluation.give(rule, series, { state, last, silencedUntilMs: 9_500, escalation: null, escalateAtMs: null })
  const [entry] = evaluation.states
  if (entry === undefined) throw new Error('the state was given')
  for (const step of steps) step(evaluation)
  evaluation[how](entry, 30_000)
  // Without windows and alarms, nothing is read or stored.
  const sent = await settleTellings({} as Transaction, () => undefined, tellings, {
    domainKey: 1,
    silencing: new Silencing([]),
    coveredBy: () => [],
    nowMs: 30_000,
  })
  return { told: sent.map(({ payload }) => String(payload['moment'])), silencedUntilMs: entry.silencedUntilMs }
}

test('at the end of maintenance contacts are notified of what is active, once', async () => {
  expect(await toldOf(ACTIVE, [])).toEqual({ told: ['raise'], silencedUntilMs: null })
})

test('what clears in the step in which the maintenance ends notifies nobody', async () => {
  expect(await toldOf(ACTIVE, [end])).toEqual({ told: [], silencedUntilMs: null })
  const clearing: RuleState = { ...ACTIVE, clearingSinceMs: 9_000, clearCause: 'end' }
  expect(await toldOf(clearing, [])).toEqual({ told: [], silencedUntilMs: null })
})

test('what clears and raises again in that step notifies once', async () => {
  expect(await toldOf(ACTIVE, [end, begin])).toEqual({ told: ['raise'], silencedUntilMs: null })
})

test('nobody is notified of what nobody waits for any more, and it stays silenced until it is cleared', async () => {
  // `clear_for` ends a second after the look.
  expect(await toldOf(ACTIVE, [], 'leave')).toEqual({ told: [], silencedUntilMs: 31_000 })
  const clearing: RuleState = { ...ACTIVE, clearingSinceMs: 9_000, clearCause: 'end' }
  expect(await toldOf(clearing, [], 'leave')).toEqual({ told: [], silencedUntilMs: null })
})
