/** Generated rules over generated series do what a plain reading of them does (rules-reference.ts). */
import { expect, test } from 'vitest'
import {
  EvaluationFailure,
  IDLE,
  RuleClient,
  WindowStore,
  advance,
  advanceTime,
  compileExpression,
} from '#api/rules/engine/index.ts'
import type { Expression, RuleState, RuleVariables } from '#api/rules/engine/index.ts'
import { AT_LENGTH } from '../harness/length.ts'
import { historyOf, holds, sourceOf } from './rules-reference.ts'
import type { BooleanTree, Num, NumberTree, PlainRecord, PlainSample, PlainTiming } from './rules-reference.ts'

const CASES = AT_LENGTH ? 100_000 : 3000
const SEED = Number(process.env['SKEIN_TEST_SEED'] ?? 20_261_129)
/** The least share of evaluations with each result, so that the cases are not all of one kind. */
const LEAST_SHARE = 0.1

/** A small generator of random numbers (mulberry32). */
class Dice {
  #state: number
  allowsLast = true

  constructor(seed: number) {
    this.#state = seed
  }

  below(limit: number): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) % limit
  }

  oneOf<T>(values: readonly T[]): T {
    return values[this.below(values.length)] as T
  }

  isIn(percent: number): boolean {
    return this.below(100) < percent
  }
}

const NAMES = ['temperature', 'fan', 'door']
const TAGS = ['cold', 'north']
const SECONDS = [1, 10, 60, 300]
const ARITHMETIC = ['+', '-', '*', '/'] as const
const COMPARISONS = ['<', '<=', '>', '>=', '==', '!='] as const

const literal = (dice: Dice): Num => (dice.isIn(50) ? BigInt(dice.below(9) - 4) : (dice.below(33) - 8) / 4)

function numberTree(dice: Dice, depth: number): NumberTree {
  const leaf = depth === 0 || dice.isIn(45)
  if (leaf) {
    const kind = dice.below(12)
    if (kind < 5) return { kind: 'value' }
    if (kind === 5 && dice.allowsLast) return { kind: 'last', series: dice.oneOf(NAMES) }
    if (kind === 6) return { kind: 'hour' }
    if (kind === 7) return { kind: 'json', field: dice.oneOf(['a', 'b']) }
    if (kind < 10) {
      const series = dice.isIn(30) ? dice.oneOf(NAMES) : undefined
      const wanted = dice.oneOf(['mean', 'min', 'max', 'count', 'delta', 'rate'] as const)
      return { kind: 'window', function: wanted, seconds: dice.oneOf(SECONDS), series }
    }
    const value = literal(dice)
    return typeof value === 'bigint' ? { kind: 'int', value } : { kind: 'double', value }
  }
  if (dice.isIn(10)) return { kind: 'negative', of: numberTree(dice, depth - 1) }
  if (dice.isIn(10)) return { kind: 'abs', of: numberTree(dice, depth - 1) }
  const operator = dice.oneOf(ARITHMETIC)
  return { kind: 'arithmetic', operator, left: numberTree(dice, depth - 1), right: numberTree(dice, depth - 1) }
}

function booleanTree(dice: Dice, depth: number): BooleanTree {
  const kind = depth === 0 ? dice.below(6) : dice.below(12)
  if (kind < 3) {
    return { kind: 'compare', operator: dice.oneOf(COMPARISONS), left: numberTree(dice, 2), right: numberTree(dice, 1) }
  }
  if (kind === 3) {
    const list = Array.from({ length: 1 + dice.below(3) }, () => literal(dice))
    return { kind: 'in', of: numberTree(dice, 1), list }
  }
  if (kind === 4) return { kind: 'name', is: dice.oneOf(NAMES) }
  if (kind === 5) {
    return dice.oneOf<BooleanTree>([
      { kind: 'text', is: 'on' },
      { kind: 'flag' },
      { kind: 'has', field: 'a' },
      { kind: 'tags', quantifier: dice.oneOf(['exists', 'all']), tag: dice.oneOf(TAGS) },
    ])
  }
  if (kind === 6) return { kind: 'not', of: booleanTree(dice, depth - 1) }
  if (kind === 7) {
    const [test, yes, no] = [0, 1, 2].map(() => booleanTree(dice, depth - 1)) as [BooleanTree, BooleanTree, BooleanTree]
    return { kind: 'choice', test, yes, no }
  }
  return { kind: kind < 10 ? 'and' : 'or', left: booleanTree(dice, depth - 1), right: booleanTree(dice, depth - 1) }
}

const START_MS = Date.parse('2026-03-28T22:00:00Z')
const YEARS_MS = 50 * 365 * 86_400_000

/** Records as they arrive: late by up to five minutes, early, of the same moment, and by clocks that are wrong by years. */
function someRecords(dice: Dice, clocks: readonly number[]): PlainRecord[] {
  const tags = TAGS.filter(() => dice.isIn(60))
  const lateMs = dice.oneOf([0, 0, 2000, 300_000])
  let arrivalMs = START_MS
  return Array.from({ length: 5 + dice.below(30) }, () => {
    arrivalMs += dice.oneOf([0, 250, 1000, 5000, 60_000, 400_000])
    const timeMs = arrivalMs - dice.below(lateMs + 1) + dice.oneOf(clocks)
    const record: PlainRecord = { arrivalMs, timeMs, name: dice.oneOf(NAMES), tags }
    const kind = dice.below(10)
    if (kind === 0) record.text = dice.oneOf(['on', 'off'])
    else if (kind === 1) record.flag = dice.isIn(50)
    else record.value = (dice.below(41) - 20) / 4
    if (dice.isIn(30)) record.json = dice.isIn(50) ? { a: dice.below(5) } : { b: dice.below(5) / 2 }
    return record
  })
}

const someTiming = (dice: Dice): PlainTiming => ({
  forMs: dice.oneOf([0, 0, 1000, 60_000]),
  clearForMs: dice.oneOf([0, 0, 5000, 60_000]),
  cooldownMs: dice.oneOf([0, 0, 10_000, 120_000]),
})

const KEY = { client: 'c', channel: 'ch', subtopic: '' }

function variablesOf(record: PlainRecord): RuleVariables {
  return {
    value: record.value,
    string_value: record.text,
    bool_value: record.flag,
    name: record.name,
    unit: '',
    time: new Date(record.timeMs),
    channel: KEY.channel,
    subtopic: KEY.subtopic,
    protocol: 'mqtt',
    client: new RuleClient(KEY.client, 'boiler', record.tags, {}),
    json: record.json,
  }
}

/** Undefined if there is no result. */
function evaluate(expression: Expression, ...given: Parameters<Expression['evaluate']>): boolean | undefined {
  try {
    return expression.evaluate(...given) as boolean
  } catch (error) {
    if (error instanceof EvaluationFailure) return undefined
    throw error
  }
}

test(`${CASES} generated rules`, () => {
  const counts = new Map<boolean | undefined, number>()
  const effectCounts = new Map<string, number>()
  for (let index = 0; index < CASES; index++) {
    const dice = new Dice(SEED + index * 7919)
    // A clock that jumps leaves nothing of the other time for `last`, which looks back for longer than the windows.
    const clocks = dice.isIn(20) ? [0, dice.oneOf([YEARS_MS, -YEARS_MS])] : [0]
    dice.allowsLast = clocks.length === 1
    const condition = booleanTree(dice, 3)
    const clearing = dice.isIn(40) ? booleanTree(dice, 2) : undefined
    const windowTime = dice.oneOf(['message', 'arrival'] as const)
    const timing = someTiming(dice)
    const records = someRecords(dice, clocks)
    const label = `case ${index} of seed ${SEED}: ${sourceOf(condition)}`

    const expression = compileExpression(sourceOf(condition), 'boolean')
    const clearWhen = clearing === undefined ? undefined : compileExpression(sourceOf(clearing), 'boolean')
    const store = new WindowStore(windowTime, Math.max(...SECONDS) * 1000)
    const samples: PlainSample[] = []
    const log: string[] = []
    let state: RuleState = IDLE
    for (const [at, record] of records.entries()) {
      const key = { ...KEY, name: record.name }
      if (record.value !== undefined) store.add(key, { ...record, value: record.value })
      const [variables, reader] = [variablesOf(record), store.reader(key, record)]
      const past = { records: records.slice(0, at + 1), windowTime }
      const result = evaluate(expression, variables, reader)
      const cleared = clearWhen === undefined ? undefined : evaluate(clearWhen, variables, reader)
      expect(result, `${label}, record ${at}`).toBe(holds(condition, past))
      if (clearing !== undefined) expect(cleared, `${label}, clearing of record ${at}`).toBe(holds(clearing, past))
      counts.set(result, (counts.get(result) ?? 0) + 1)
      // A record without a result changes nothing.
      if (result === undefined || (clearWhen !== undefined && cleared === undefined)) continue
      const { arrivalMs: atMs } = record
      samples.push({ atMs, holds: result, clears: cleared })
      const advanced = advance(timing, state, { atMs, holds: result, clears: cleared, cause: `m${at}` })
      state = JSON.parse(JSON.stringify(advanced.state)) as RuleState
      log.push(...advanced.effects.map((effect) => `${effect.kind}@${effect.atMs}`))
    }
    const endMs = (records.at(-1)?.arrivalMs ?? START_MS) + dice.oneOf([0, 30_000, 600_000])
    log.push(...advanceTime(timing, state, endMs).effects.map((effect) => `${effect.kind}@${effect.atMs}`))
    expect(log, label).toEqual(historyOf(timing, samples, endMs))
    for (const effect of log) {
      const kind = effect.replace(/@.*/, '')
      effectCounts.set(kind, (effectCounts.get(kind) ?? 0) + 1)
    }
  }
  const total = [...counts.values()].reduce((sum, count) => sum + count, 0)
  for (const result of [true, false, undefined]) expect((counts.get(result) ?? 0) / total).toBeGreaterThan(LEAST_SHARE)
  for (const kind of ['raise', 'repeat', 'clear']) expect(effectCounts.get(kind) ?? 0).toBeGreaterThan(CASES / 10)
})
