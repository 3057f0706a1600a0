/**
 * Rules read as plainly as possible, to compare the engine with: conditions are trees and not texts, a window is a search of everything that has
 * arrived, and a state is a scan of everything that happened. It shares no code with api/rules/engine/.
 */

export type Num = bigint | number
export type NumberTree =
  | { kind: 'int'; value: bigint }
  | { kind: 'double'; value: number }
  | { kind: 'value' }
  | {
      kind: 'window'
      function: 'mean' | 'min' | 'max' | 'count' | 'delta' | 'rate'
      seconds: number
      series?: string | undefined
    }
  | { kind: 'last'; series: string }
  | { kind: 'arithmetic'; operator: '+' | '-' | '*' | '/'; left: NumberTree; right: NumberTree }
  | { kind: 'negative'; of: NumberTree }
  | { kind: 'abs'; of: NumberTree }
  | { kind: 'hour' }
  | { kind: 'json'; field: string }

export type BooleanTree =
  | { kind: 'compare'; operator: '<' | '<=' | '>' | '>=' | '==' | '!='; left: NumberTree; right: NumberTree }
  | { kind: 'in'; of: NumberTree; list: readonly Num[] }
  | { kind: 'and' | 'or'; left: BooleanTree; right: BooleanTree }
  | { kind: 'not'; of: BooleanTree }
  | { kind: 'choice'; test: BooleanTree; yes: BooleanTree; no: BooleanTree }
  | { kind: 'name'; is: string }
  | { kind: 'text'; is: string }
  | { kind: 'flag' }
  | { kind: 'has'; field: string }
  | { kind: 'tags'; quantifier: 'exists' | 'all'; tag: string }

export type PlainRecord = {
  arrivalMs: number
  timeMs: number
  name: string
  value?: number | undefined
  text?: string | undefined
  flag?: boolean | undefined
  json?: Readonly<Record<string, number>> | undefined
  tags: readonly string[]
}

const number = (value: Num): string =>
  typeof value === 'bigint' ? String(value) : Number.isInteger(value) ? `${value}.0` : String(value)

/** The source of a condition, with all parentheses. */
export function sourceOf(tree: NumberTree | BooleanTree): string {
  switch (tree.kind) {
    case 'int':
    case 'double':
      return number(tree.value)
    case 'value':
      return 'value'
    case 'window':
      return `${tree.function}("${tree.seconds}s"${tree.series === undefined ? '' : `, "${tree.series}"`})`
    case 'last':
      return `last("${tree.series}")`
    case 'arithmetic':
    case 'compare':
      return `(${sourceOf(tree.left)} ${tree.operator} ${sourceOf(tree.right)})`
    case 'negative':
      return `-(${sourceOf(tree.of)})`
    case 'abs':
      return `abs(${sourceOf(tree.of)})`
    case 'hour':
      return 'hour(time, "UTC")'
    case 'json':
      return `json.${tree.field}`
    case 'in':
      return `${sourceOf(tree.of)} in [${tree.list.map(number).join(', ')}]`
    case 'and':
      return `(${sourceOf(tree.left)} && ${sourceOf(tree.right)})`
    case 'or':
      return `(${sourceOf(tree.left)} || ${sourceOf(tree.right)})`
    case 'not':
      return `!(${sourceOf(tree.of)})`
    case 'choice':
      return `(${sourceOf(tree.test)} ? ${sourceOf(tree.yes)} : ${sourceOf(tree.no)})`
    case 'name':
      return `name == "${tree.is}"`
    case 'text':
      return `string_value == "${tree.is}"`
    case 'flag':
      return 'bool_value'
    case 'has':
      return `has(json.${tree.field})`
    case 'tags':
      return `client.tags.${tree.quantifier}(tag, tag == "${tree.tag}")`
  }
}

/** No result: a value is absent, a window has too few values, or an integer is divided by zero. */
const NONE = Symbol('no result')
type Result<T> = T | typeof NONE

/** All that has arrived, the record to evaluate as its last. */
export type Past = { records: readonly PlainRecord[]; windowTime: 'message' | 'arrival' }

export function holds(tree: BooleanTree, past: Past): boolean | undefined {
  const result = booleanOf(tree, past)
  return result === NONE ? undefined : result
}

const here = ({ records }: Past): PlainRecord => records.at(-1) as PlainRecord
const orNone = <T>(value: T | undefined): Result<T> => value ?? NONE

function booleanOf(tree: BooleanTree, past: Past): Result<boolean> {
  switch (tree.kind) {
    case 'compare':
    case 'in': {
      const left = numberOf(tree.kind === 'in' ? tree.of : tree.left, past)
      if (left === NONE) return NONE
      if (tree.kind === 'in') return tree.list.some((item) => Number(item) === Number(left))
      const right = numberOf(tree.right, past)
      return right === NONE ? NONE : compare(tree.operator, Number(left), Number(right))
    }
    case 'and':
    case 'or': {
      // The value that decides alone does so whatever the other operand is.
      const deciding = tree.kind === 'or'
      const results = [booleanOf(tree.left, past), booleanOf(tree.right, past)]
      if (results.includes(deciding)) return deciding
      return results.includes(NONE) ? NONE : !deciding
    }
    case 'not': {
      const of = booleanOf(tree.of, past)
      return of === NONE ? NONE : !of
    }
    case 'choice': {
      const which = booleanOf(tree.test, past)
      return which === NONE ? NONE : booleanOf(which ? tree.yes : tree.no, past)
    }
    case 'name':
      return here(past).name === tree.is
    case 'text': {
      const { text } = here(past)
      return text === undefined ? NONE : text === tree.is
    }
    case 'flag':
      return orNone(here(past).flag)
    case 'has': {
      const { json } = here(past)
      return json === undefined ? NONE : tree.field in json
    }
    case 'tags': {
      const { tags } = here(past)
      return tree.quantifier === 'all' ? tags.every((tag) => tag === tree.tag) : tags.includes(tree.tag)
    }
  }
}

function compare(operator: string, left: number, right: number): boolean {
  switch (operator) {
    case '<':
      return left < right
    case '<=':
      return left <= right
    case '>':
      return left > right
    case '>=':
      return left >= right
    case '==':
      return left === right
    default:
      return left !== right
  }
}

function numberOf(tree: NumberTree, past: Past): Result<Num> {
  switch (tree.kind) {
    case 'int':
    case 'double':
      return tree.value
    case 'value':
      return orNone(here(past).value)
    case 'last':
      return orNone(inWindow(past, tree.series, 86_400).at(-1)?.value)
    case 'window':
      return windowOf(tree.function, inWindow(past, tree.series ?? here(past).name, tree.seconds), past)
    case 'arithmetic': {
      const left = numberOf(tree.left, past)
      const right = numberOf(tree.right, past)
      if (left === NONE || right === NONE) return NONE
      if (typeof left === 'bigint' && typeof right === 'bigint') return integers(tree.operator, left, right)
      return doubles(tree.operator, Number(left), Number(right))
    }
    case 'negative': {
      const of = numberOf(tree.of, past)
      return of === NONE ? NONE : -of
    }
    case 'abs': {
      const of = numberOf(tree.of, past)
      return of === NONE || of >= 0 ? of : -of
    }
    case 'hour':
      return BigInt(Math.floor((((here(past).timeMs % 86_400_000) + 86_400_000) % 86_400_000) / 3_600_000))
    case 'json':
      return orNone(here(past).json?.[tree.field])
  }
}

function integers(operator: string, left: bigint, right: bigint): Result<bigint> {
  if (operator === '/') return right === 0n ? NONE : left / right
  const result = operator === '+' ? left + right : operator === '-' ? left - right : left * right
  return result > 2n ** 63n - 1n || result < -(2n ** 63n) ? NONE : result
}

function doubles(operator: string, left: number, right: number): number {
  if (operator === '/') return left / right
  return operator === '+' ? left + right : operator === '-' ? left - right : left * right
}

type Point = { at: number; value: number }

/** The values of a series in the window that ends at the record, ordered by the time of the window; those of one time as they arrived. */
function inWindow({ records, windowTime }: Past, name: string, seconds: number): Point[] {
  const timeOf = (record: PlainRecord) => (windowTime === 'message' ? record.timeMs : record.arrivalMs)
  const end = timeOf(records.at(-1) as PlainRecord)
  const points: Point[] = []
  for (const record of records) {
    const at = timeOf(record)
    if (record.name === name && record.value !== undefined && at <= end && at > end - seconds * 1000) {
      points.push({ at, value: record.value })
    }
  }
  return points.toSorted((left, right) => left.at - right.at)
}

function windowOf(wanted: string, points: readonly Point[], past: Past): Result<Num> {
  if (past.records.length === 0) return NONE
  const values = points.map(({ value }) => value)
  const [first, last] = [points[0], points.at(-1)]
  if (wanted === 'count') return BigInt(values.length)
  if (first === undefined || last === undefined) return NONE
  if (wanted === 'mean') return values.reduce((sum, value) => sum + value, 0) / values.length
  if (wanted === 'min') return Math.min(...values)
  if (wanted === 'max') return Math.max(...values)
  const delta = last.value - first.value
  if (wanted === 'delta') return delta
  return last.at === first.at ? NONE : delta / ((last.at - first.at) / 1000)
}

export type PlainTiming = { forMs: number; clearForMs: number; cooldownMs: number }
export type PlainSample = { atMs: number; holds: boolean; clears: boolean | undefined }

/** What a rule does with samples, and until a time after them: `raise@…`, `repeat@…`, `clear@…`. */
export function historyOf(timing: PlainTiming, samples: readonly PlainSample[], untilMs: number): string[] {
  const log: string[] = []
  let isActive = false
  let holdsSince: number | undefined
  let clearsSince: number | undefined
  let quietUntil = -Infinity
  const letTimePass = (nowMs: number) => {
    if (!isActive && holdsSince !== undefined) {
      const due = Math.max(holdsSince + timing.forMs, quietUntil)
      if (due > nowMs) return
      log.push(`raise@${due}`)
      isActive = true
      clearsSince = undefined
    } else if (isActive && clearsSince !== undefined && clearsSince + timing.clearForMs <= nowMs) {
      const due = clearsSince + timing.clearForMs
      log.push(`clear@${due}`)
      isActive = false
      holdsSince = undefined
      quietUntil = due + timing.cooldownMs
    }
  }
  for (const sample of samples) {
    letTimePass(sample.atMs)
    if (!isActive) {
      holdsSince = sample.holds ? (holdsSince ?? sample.atMs) : undefined
      letTimePass(sample.atMs)
    } else if (sample.holds) {
      log.push(`repeat@${sample.atMs}`)
      clearsSince = undefined
    } else if (sample.clears ?? true) {
      clearsSince ??= sample.atMs
      letTimePass(sample.atMs)
    } else clearsSince = undefined
  }
  letTimePass(untilMs)
  return log
}
