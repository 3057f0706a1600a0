/**
 * Rules without a database, and silence of 100,000 clients: the evaluation of a condition behind its limits against the bare library, in turns; the choice of rules among 10 and
 * among 1,000 that a record does not meet; and all that a record costs that meets one rule.
 */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { Environment } from '@marcbachmann/cel-js'
import {
  IDLE,
  RuleClient,
  RuleIndex,
  SilenceTimers,
  WindowStore,
  advance,
  compileExpression,
} from '../api/rules/engine/index.ts'
import type { RecordFacts, RuleFilter, RuleVariables } from '../api/rules/engine/index.ts'
import { median, printTable } from './statistics.ts'
import type { Row } from './statistics.ts'

const ROUNDS = 15
const EVALUATIONS = 50_000
const WARM_UP = 5000
const MAX_RATIO = 1.5
const MAX_INDEX_RATIO = 1.1
const MAX_MET_US = 5
const WINDOW_VALUES = 300
const SILENT_CLIENTS = 100_000
const SILENCE_MS = 900_000
const MAX_SILENCE_MB = 50
/** No turn of the event loop takes longer. */
const MAX_OUTAGE_MS = 100

const CONDITIONS: readonly (readonly [name: string, source: string])[] = [
  ['two comparisons', 'value > 30.0 && name == "temperature"'],
  [
    'metadata of the client',
    'client.metadata.floor in ["1", "2"] && value >= 20.0 && value <= 45.0 && !(has(client.metadata.muted) && client.metadata.muted)',
  ],
  [
    'a list, a text, arithmetic',
    'client.tags.exists(t, t == "cold") && name.startsWith("temp") && value * 1.8 + 32.0 > 80.0',
  ],
  ['a field of JSON', 'json.v > 1.0'],
]

/** A condition that only the language of Skein has: what expressions over integers and windows cost. */
const OWN: readonly (readonly [name: string, source: string])[] = [
  ['integers and doubles', 'value * 9 / 5 + 32 > 80'],
  ['a field that is absent', 'json.absent > 1.0'],
  [`a mean over ${WINDOW_VALUES} values`, 'mean("5m") > 30.0'],
  ['a local time', 'hour(time, "Europe/Berlin") >= 22'],
]

const CLIENT = new RuleClient('a-client', 'boiler', ['north', 'east', 'cold'], { floor: '1', muted: false })
const VARIABLES: RuleVariables = {
  value: 31.5,
  name: 'temperature',
  unit: 'Cel',
  time: new Date('2026-11-29T22:30:00Z'),
  channel: 'a-channel',
  subtopic: 'hall.east',
  protocol: 'mqtt',
  client: CLIENT,
  json: { v: 2 },
}

/** Keeps the results of measured calls, so that no call is left out. */
let kept: unknown

/** Processor time of one call. */
function nsOf(run: () => unknown): number {
  for (let turn = 0; turn < WARM_UP; turn++) kept = run()
  const before = process.threadCpuUsage()
  for (let turn = 0; turn < EVALUATIONS; turn++) kept = run()
  const { user, system } = process.threadCpuUsage(before)
  return ((user + system) * 1000) / EVALUATIONS
}

/** Medians of runs in turns. */
function inTurns(...runs: (() => unknown)[]): number[] {
  const found: number[][] = runs.map(() => [])
  for (let round = 0; round < ROUNDS; round++) for (const [at, run] of runs.entries()) found[at]?.push(nsOf(run))
  return found.map(median)
}

function bareConditions(): Environment {
  return new Environment()
    .registerType('RuleClient', {
      ctor: RuleClient,
      fields: { id: 'string', name: 'string', tags: 'list<string>', metadata: 'map<string, dyn>' },
    })
    .registerVariable('value', 'double')
    .registerVariable('name', 'string')
    .registerVariable('client', 'RuleClient')
    .registerVariable('json', 'dyn')
}

function windowsWithValues(): WindowStore {
  const store = new WindowStore('arrival', 300_000)
  const timeMs = VARIABLES.time.getTime()
  for (let at = WINDOW_VALUES - 1; at >= 0; at--) {
    store.add(SERIES, { timeMs: timeMs - at * 1000, arrivalMs: timeMs - at * 1000, value: at })
  }
  return store
}

const SERIES = { client: CLIENT.id, channel: VARIABLES.channel, subtopic: VARIABLES.subtopic, name: 'temperature' }

const FACTS: RecordFacts = {
  channel: VARIABLES.channel,
  subtopic: VARIABLES.subtopic,
  name: 'temperature',
  client: CLIENT.id,
  groups: ['a-group'],
  tags: CLIENT.tags,
}

/** Rules of the record's channel, none of which it meets, and one that it meets. */
function indexOf(count: number): RuleIndex<RuleFilter> {
  const kinds: readonly ((at: number) => RuleFilter)[] = [
    (at) => ({ names: [`other-${at}`] }),
    (at) => ({ subtopic: `hall.line-${at}.>` }),
    (at) => ({ clients: [`client-${at}`] }),
    (at) => ({ tags: [`tag-${at}`] }),
    (at) => ({ groups: [`group-${at}`] }),
  ]
  const others = Array.from({ length: count }, (_, at) => kinds[at % kinds.length]?.(at) ?? {})
  const rules = [...others, { names: ['temperature'] }].map((rule) => ({ ...rule, channels: [FACTS.channel] }))
  return new RuleIndex(rules, (rule) => rule)
}

const nanoseconds = (value: number) => `${value.toFixed(0)} ns`

function conditionRows(): Row[] {
  const bare = bareConditions()
  return CONDITIONS.map(([name, source]) => {
    const expression = compileExpression(source, 'boolean')
    const parsed = bare.parse(source)
    parsed.check()
    const [ours, theirs] = inTurns(
      () => expression.evaluate(VARIABLES),
      () => parsed(VARIABLES) as unknown,
    ) as [number, number]
    return {
      name,
      figure: nanoseconds(ours),
      ratio: `${(ours / theirs).toFixed(2)} × the bare library, ${nanoseconds(theirs)}`,
      target: `${MAX_RATIO} times, or 50 ns more`,
      isReached: ours <= Math.max(MAX_RATIO * theirs, theirs + 50),
    }
  })
}

function ownRows(): Row[] {
  const timeMs = VARIABLES.time.getTime()
  const reader = windowsWithValues().reader(SERIES, { timeMs, arrivalMs: timeMs })
  return OWN.map(([name, source]) => {
    const expression = compileExpression(source, 'boolean')
    const [ns] = inTurns(() => {
      try {
        return expression.evaluate(VARIABLES, reader)
      } catch (error) {
        return error
      }
    }) as [number]
    return { name, figure: nanoseconds(ns) }
  })
}

function indexRow(): Row {
  const [few, many] = [indexOf(10), indexOf(1000)]
  const [besideFew, besideMany] = inTurns(
    () => few.match(FACTS),
    () => many.match(FACTS),
  ) as [number, number]
  return {
    name: 'choose among 1,000 rules',
    figure: nanoseconds(besideMany),
    ratio: `${(besideMany / besideFew).toFixed(2)} × among 10, ${nanoseconds(besideFew)}`,
    target: `${MAX_INDEX_RATIO} times, or 50 ns more`,
    isReached: besideMany <= Math.max(MAX_INDEX_RATIO * besideFew, besideFew + 50),
  }
}

function metRow(): Row {
  const index = indexOf(1000)
  const expression = compileExpression('value > 30.0 && name == "temperature"', 'boolean')
  const timing = { forMs: 0, clearForMs: 0, cooldownMs: 0 }
  const { state } = advance(timing, IDLE, { atMs: 1, holds: true, cause: '1' })
  const [ns] = inTurns(() =>
    index.match(FACTS).map(() => {
      const holds = expression.evaluate({ ...VARIABLES, time: new Date(2) }) as boolean
      return advance(timing, state, { atMs: 2, holds, cause: '2' })
    }),
  ) as [number]
  return {
    name: 'choose, evaluate, repeat an alarm',
    figure: nanoseconds(ns),
    target: `${MAX_MET_US} µs`,
    isReached: ns <= MAX_MET_US * 1000,
  }
}

/** Memory after what is not used any more was freed. */
function usedBytes(): number {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  for (let turn = 0; turn < 3; turn++) collect()
  return process.memoryUsage().heapUsed
}

const idOf = (at: number) => `${at.toString(16).padStart(8, '0')}-0000-4000-8000-000000000000`

/** A rule that waits for messages of many clients, as one that all of them meet. */
function silenceRows(): Row[] {
  const before = usedBytes()
  const timers = new SilenceTimers({ afterMs: SILENCE_MS, share: 0.5 })
  for (let at = 0; at < SILENT_CLIENTS; at++) timers.watch(idOf(at), 0)
  const bytes = usedBytes() - before
  const ids = Array.from({ length: SILENT_CLIENTS }, (_, at) => idOf(at))
  let at = 0
  let nowMs = 1
  const [heard] = inTurns(() => timers.heard(ids[(at = (at + 7_919) % SILENT_CLIENTS)] ?? '', ++nowMs)) as [number]
  const quiet = new SilenceTimers({ afterMs: SILENCE_MS, share: 0.5 })
  for (const id of ids) quiet.watch(id, 0)
  const begun = process.threadCpuUsage()
  kept = quiet.judge(SILENCE_MS, 1000)
  const { user, system } = process.threadCpuUsage(begun)
  const outageMs = (user + system) / 1000
  return [
    {
      name: 'memory of 100,000 clients',
      figure: `${(bytes / 1e6).toFixed(1)} MB`,
      target: `${MAX_SILENCE_MB} MB`,
      isReached: bytes > 0 && bytes <= MAX_SILENCE_MB * 1e6,
    },
    { name: 'a message of one of them', figure: nanoseconds(heard) },
    {
      name: 'all of them fall silent at once',
      figure: `${outageMs.toFixed(1)} ms`,
      target: `${MAX_OUTAGE_MS} ms`,
      isReached: outageMs <= MAX_OUTAGE_MS,
    },
  ]
}

export function benchRules(): void {
  printTable('Conditions of rules, for each record', [...conditionRows(), ...ownRows(), indexRow(), metRow()])
  printTable('Silence of clients', silenceRows())
  if (kept === undefined) throw new Error('nothing was measured')
}
