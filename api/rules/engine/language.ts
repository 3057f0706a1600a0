/**
 * The language of expressions: Common Expression Language with the variables of a record, arithmetic over integers and doubles together, windows
 * and local times. Only the functions of `FUNCTIONS` are accepted.
 */
import { Environment } from '@marcbachmann/cel-js'
import { parseDurationMs } from '#core/time.ts'
import { EvaluationFailure } from './expression-error.ts'
import type { Checker, Evaluator, SyntaxNode } from './syntax-tree.ts'
import { CLIENT_FIELDS, RuleClient, VARIABLE_TYPES } from './variables.ts'
import { MAX_WINDOW_MS } from './window-reader.ts'
import type { WindowFunction, WindowReader, WindowRequest } from './window-reader.ts'

/** The number of nodes of a syntax tree. */
export const MAX_NODES = 1000
/** How deep parentheses, lists and accesses may be inside each other. */
export const MAX_DEPTH = 64

/** Each function with the forms that are accepted. */
export const FUNCTIONS: Readonly<Record<string, string>> = {
  has: 'has(json.field)',
  size: 'size(text), text.size() and the same of lists and maps',
  string: 'string(value)',
  int: 'int(number) and int(text)',
  double: 'double(number) and double(text)',
  bool: 'bool(text)',
  type: 'type(value)',
  dyn: 'dyn(value)',
  duration: 'duration("5m")',
  timestamp: 'timestamp("2026-01-31T12:00:00Z") and timestamp(seconds)',
  startsWith: 'text.startsWith("text")',
  endsWith: 'text.endsWith("text")',
  contains: 'text.contains("text")',
  lowerAscii: 'text.lowerAscii()',
  upperAscii: 'text.upperAscii()',
  trim: 'text.trim()',
  indexOf: 'text.indexOf("text")',
  substring: 'text.substring(from) and text.substring(from, to)',
  split: 'text.split(",")',
  join: 'list.join(",")',
  all: 'list.all(item, condition)',
  exists: 'list.exists(item, condition)',
  exists_one: 'list.exists_one(item, condition)',
  map: 'list.map(item, value)',
  filter: 'list.filter(item, condition)',
  abs: 'abs(number)',
  round: 'round(number) and round(number, decimals)',
  mean: 'mean("5m") and mean("5m", "name")',
  min: 'min("5m") and min("5m", "name")',
  max: 'max("5m") and max("5m", "name")',
  count: 'count("5m") and count("5m", "name")',
  delta: 'delta("5m") and delta("5m", "name")',
  rate: 'rate("5m") and rate("5m", "name")',
  last: 'last("name")',
  hour: 'hour(time, "Europe/Berlin")',
  minute: 'minute(time, "Europe/Berlin")',
  weekday: 'weekday(time, "Europe/Berlin")',
  day: 'day(time, "Europe/Berlin")',
  month: 'month(time, "Europe/Berlin")',
  year: 'year(time, "Europe/Berlin")',
}

/** Functions that repeat an expression for each item of a list. */
export const COMPREHENSIONS: ReadonlySet<string> = new Set(['all', 'exists', 'exists_one', 'map', 'filter'])

const WINDOW_FUNCTIONS: ReadonlySet<string> = new Set<WindowFunction>(['mean', 'min', 'max', 'count', 'delta', 'rate'])

/** The code of errors that this folder wrote: their sentence is for the user as it is. */
export const OWN_ERROR = 'skein'

/** What answers the windows of the running evaluation. Evaluations are synchronous and not nested. */
let reader: WindowReader | undefined

export function useWindows(windows: WindowReader | undefined): void {
  reader = windows
}

const NOT_KEPT = new EvaluationFailure('the windows of the series are not available')

/** Messages of windows with too few values, one object each: a new stack for each record would cost more than the evaluation. */
const tooFew = new Map<WindowFunction, EvaluationFailure>()

function readWindow(request: WindowRequest): number {
  if (reader === undefined) throw NOT_KEPT
  const value = reader.read(request)
  if (value !== undefined) return value
  let failure = tooFew.get(request.function)
  if (failure === undefined) {
    failure = new EvaluationFailure(`${request.function}() has too few values in its window`)
    tooFew.set(request.function, failure)
  }
  throw failure
}

function literalText(checker: Checker, node: SyntaxNode, accepted: string): string {
  if (node.op === 'value' && typeof node.args === 'string') return node.args
  throw checker.createError(OWN_ERROR, `must be a text in quotes: ${accepted}`, node)
}

function windowDuration(checker: Checker, node: SyntaxNode, accepted: string): number {
  const text = literalText(checker, node, accepted)
  let durationMs: number
  try {
    durationMs = parseDurationMs(text)
  } catch {
    durationMs = 0
  }
  if (durationMs > 0 && durationMs <= MAX_WINDOW_MS) return durationMs
  throw checker.createError(OWN_ERROR, 'a window must be a duration between 1ms and 24h, such as "90s" or "15m"', node)
}

/** The request of a call of a window function; undefined for other calls. Its arguments are literals, as the check has made sure. */
export function windowOf(name: string, args: readonly SyntaxNode[]): WindowRequest | undefined {
  const texts = args.map((arg) => arg.args as string)
  if (name === 'last') return { function: name, series: texts[0], durationMs: undefined }
  if (!WINDOW_FUNCTIONS.has(name)) return undefined
  return { function: name as WindowFunction, series: texts[1], durationMs: parseDurationMs(texts[0] ?? '') }
}

type MacroCall = { ast: SyntaxNode; args: readonly SyntaxNode[] }

/** A function whose arguments are read when the expression is parsed. */
function windowMacro(name: WindowFunction) {
  const resultType = name === 'count' ? 'int' : 'double'
  return ({ args }: MacroCall) => {
    let request: WindowRequest | undefined
    return {
      async: false,
      typeCheck(checker: Checker) {
        const [first, second] = args
        const accepted = FUNCTIONS[name] as string
        if (name === 'last') literalText(checker, first as SyntaxNode, accepted)
        else windowDuration(checker, first as SyntaxNode, accepted)
        if (second !== undefined) literalText(checker, second, accepted)
        request = windowOf(name, args)
        return checker.getType(resultType)
      },
      evaluate() {
        const value = readWindow(request as WindowRequest)
        return name === 'count' ? BigInt(value) : value
      },
    }
  }
}

const LOCAL_FIELDS = {
  hour: (time) => time.hour,
  minute: (time) => time.minute,
  /** 1 is Monday, 7 is Sunday (ISO 8601). */
  weekday: (time) => time.dayOfWeek,
  day: (time) => time.day,
  month: (time) => time.month,
  year: (time) => time.year,
} as const satisfies Record<string, (time: Temporal.ZonedDateTime) => number>

/** The time zone is a literal, so that a misspelt one is refused when the rule is saved. */
function localTimeMacro(name: keyof typeof LOCAL_FIELDS) {
  const field = LOCAL_FIELDS[name]
  return ({ ast, args: [time, zone] }: MacroCall) => ({
    async: false,
    typeCheck(checker: Checker, _macro: unknown, context: unknown) {
      const { name: type, kind } = checker.check(time as SyntaxNode, context)
      if (type !== VARIABLE_TYPES.time && kind !== 'dyn') {
        throw checker.createError(OWN_ERROR, `${name}() needs a time: ${FUNCTIONS[name]}`, ast)
      }
      const text = literalText(checker, zone as SyntaxNode, FUNCTIONS[name] as string)
      try {
        Temporal.Now.zonedDateTimeISO(text)
      } catch {
        throw checker.createError(OWN_ERROR, `must be a time zone such as "Europe/Berlin" or "UTC"`, zone as SyntaxNode)
      }
      return checker.getType('int')
    },
    evaluate(evaluator: Evaluator, _macro: unknown, context: unknown) {
      const moment = evaluator.run(time as SyntaxNode, context)
      if (!(moment instanceof Date)) throw new EvaluationFailure(`${name}() needs a time`)
      const instant = Temporal.Instant.fromEpochMilliseconds(moment.getTime())
      return BigInt(field(instant.toZonedDateTimeISO((zone as SyntaxNode).args as string)))
    },
  })
}

/** JavaScript has a decimal form of a double that is exact to its last digit, so 1.005 rounds to 1 and not to 1.01. */
function roundTo(value: number, decimals: bigint): number {
  if (decimals < 0n || decimals > 15n) throw new EvaluationFailure('round() accepts 0 to 15 decimals')
  return Math.abs(value) < 1e21 ? Number(value.toFixed(Number(decimals))) : value
}

type Numeric = number | bigint
/** Arithmetic over an integer and a double has a double as its result. */
const MIXED: readonly [operator: string, apply: (left: number, right: number) => number][] = [
  ['+', (left, right) => left + right],
  ['-', (left, right) => left - right],
  ['*', (left, right) => left * right],
  ['/', (left, right) => left / right],
  ['%', (left, right) => left % right],
]

function createEnvironment(): Environment {
  const environment = new Environment({
    homogeneousAggregateLiterals: false,
    limits: { maxAstNodes: MAX_NODES, maxDepth: MAX_DEPTH },
  })
  environment.registerType('RuleClient', { ctor: RuleClient, fields: { ...CLIENT_FIELDS } })
  for (const [name, type] of Object.entries(VARIABLE_TYPES)) environment.registerVariable(name, type)
  for (const [operator, apply] of MIXED) {
    const handler = (left: Numeric, right: Numeric) => apply(Number(left), Number(right))
    environment.registerOperator(`int ${operator} double: double`, handler)
    environment.registerOperator(`double ${operator} int: double`, handler)
  }
  environment.registerOperator('double % double: double', (left: number, right: number) => left % right)
  // Exact, also beyond 2^53, where an integer and a double that is next to it differ.
  environment.registerOperator(
    'int == double: bool',
    (left: bigint, right: number) => Number.isInteger(right) && left === BigInt(right),
  )
  environment.registerFunction('abs(double): double', (value: number) => Math.abs(value))
  environment.registerFunction('abs(int): int', (value: bigint) => (value < 0n ? -value : value))
  environment.registerFunction('round(double): double', (value: number) => roundTo(value, 0n))
  environment.registerFunction('round(double, int): double', roundTo)
  for (const name of ['mean', 'min', 'max', 'count', 'delta', 'rate'] as const) {
    const type = name === 'count' ? 'int' : 'double'
    environment.registerFunction(`${name}(ast): ${type}`, windowMacro(name))
    environment.registerFunction(`${name}(ast, ast): ${type}`, windowMacro(name))
  }
  environment.registerFunction('last(ast): double', windowMacro('last'))
  for (const name of Object.keys(LOCAL_FIELDS) as (keyof typeof LOCAL_FIELDS)[]) {
    environment.registerFunction(`${name}(ast, ast): int`, localTimeMacro(name))
  }
  return environment
}

export const LANGUAGE: Environment = createEnvironment()
