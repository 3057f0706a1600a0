/**
 * What the library accepts and an expression may not do. `refuse` looks at a tree before its types are checked; `limitWork` changes a checked
 * tree so that its evaluation counts the work that it does, and so that numbers stay numbers.
 */
import { nearestName } from '#core/nearest.ts'
import { EvaluationFailure } from './expression-error.ts'
import { COMPREHENSIONS, FUNCTIONS } from './language.ts'
import { callOf, childrenOf } from './syntax-tree.ts'
import type { Call, Evaluator, SyntaxNode } from './syntax-tree.ts'
import { VARIABLE_TYPES } from './variables.ts'

/** Functions such as `all` inside each other: the work of two grows with the square of a list, of three with its cube. */
export const MAX_COMPREHENSION_DEPTH = 2
/** Of a list that a function such as `all` repeats an expression for. */
export const MAX_ITEMS = 1000
/**
 * Of one evaluation, a few milliseconds: an item of a list that is copied or compared is one step, so are 64 characters of a text, and so are
 * the parts of a repeated expression, eight at a time, for each item.
 */
export const MAX_STEPS = 20_000
const CHARS_PER_STEP_BITS = 6
const NODES_PER_STEP = 8
/** And one more for each 64 characters of the source, which an error looks at. */
const STEPS_OF_ERROR = 10

const MAX_INT = 2n ** 63n - 1n
const MIN_INT = -(2n ** 63n)
/** As the language defines them for timestamps and durations. */
const MIN_TIME_MS = Date.parse('0001-01-01T00:00:00Z')
const MAX_TIME_MS = Date.parse('9999-12-31T23:59:59.999Z')
const MAX_DURATION_SECONDS = 315_576_000_000n

/** Names through which JavaScript leads from a value to the program. The library does not follow them; a rule has no use for them. */
const PROTOTYPE_NAMES: ReadonlySet<string> = new Set(['__proto__', 'constructor', 'prototype'])
/** Names of types, for comparisons with `type(value)`. */
const TYPE_NAMES: ReadonlySet<string> = new Set(['bool', 'int', 'double', 'string', 'list', 'map', 'null_type', 'type'])

/** Functions of the language or of the library that are refused, with what to write instead. */
const REFUSED_FUNCTIONS: Readonly<Record<string, string>> = {
  matches: 'regular expressions are not accepted; use startsWith, endsWith, contains or split',
  uint: 'unsigned integers are not accepted; use int(value)',
  bytes: 'bytes are not accepted; use texts',
  ...Object.fromEntries(
    [
      'getHours',
      'getMinutes',
      'getDayOfWeek',
      'getDayOfMonth',
      'getDate',
      'getMonth',
      'getFullYear',
      'getDayOfYear',
    ].map((name) => [
      name,
      'parts of a time need a time zone: hour(time, "Europe/Berlin"), minute, weekday, day, month, year',
    ]),
  ),
  ...Object.fromEntries(
    ['getSeconds', 'getMilliseconds'].map((name) => [
      name,
      'compare durations with durations: time - other > duration("5m")',
    ]),
  ),
}

export type Refusal = { at: number; sentence: string }

/** The first thing that is refused, with the names of the variables that the tree uses. */
export class Reading {
  readonly variables = new Set<string>()
  refusal: Refusal | undefined
  readonly #items: string[] = []
  #comprehensions = 0

  refuse(node: SyntaxNode, sentence: string): void {
    this.refusal ??= { at: node.start, sentence }
  }

  read(node: SyntaxNode, parent?: SyntaxNode): void {
    if (this.refusal !== undefined) return
    if (node.op === 'value') return this.#readLiteral(node, parent)
    if (node.op === 'id') return this.#readName(node)
    const call = callOf(node)
    if (call !== undefined && COMPREHENSIONS.has(call.name) && call.receiver !== undefined) {
      return this.#readComprehension(node, call.receiver, call.args)
    }
    if (call !== undefined) this.#readCall(node, call.name, call.args)
    else if (node.op === '.' || node.op === '[]') this.#readAccess(node)
    else if (node.op === 'map') this.#readMap(node)
    else if (node.op === 'in') acceptMixedNumbers(node)
    for (const child of childrenOf(node)) this.read(child, node)
  }

  #readLiteral(node: SyntaxNode, parent: SyntaxNode | undefined): void {
    const value = node.args
    if (typeof value === 'bigint') {
      // The smallest integer is the negation of a number that is no integer itself.
      if (value > (parent?.op === '-_' ? MAX_INT + 1n : MAX_INT)) {
        this.refuse(
          node,
          'an integer must be between -9223372036854775808 and 9223372036854775807; write 1.0e19 for a larger number',
        )
      }
    } else if (value instanceof Uint8Array) this.refuse(node, REFUSED_FUNCTIONS['bytes'] as string)
    else if (typeof value === 'object' && value !== null)
      this.refuse(node, 'unsigned integers are not accepted; write 1 instead of 1u')
  }

  #readName(node: SyntaxNode): void {
    const name = node.args as string
    if (this.#items.includes(name) || TYPE_NAMES.has(name)) return
    if (Object.hasOwn(VARIABLE_TYPES, name)) this.variables.add(name)
    else
      this.refuse(
        node,
        `there is no name ${name}${suggest(name, Object.keys(VARIABLE_TYPES))}; the names are ${Object.keys(VARIABLE_TYPES).join(', ')}`,
      )
  }

  #readCall(node: SyntaxNode, name: string, args: readonly SyntaxNode[]): void {
    if (Object.hasOwn(FUNCTIONS, name)) {
      const [text] = args
      const accepts = Object.hasOwn(TEXT_FORMS, name) ? TEXT_FORMS[name] : undefined
      if (accepts === undefined || text?.op !== 'value' || typeof text.args !== 'string' || accepts(text.args)) return
      return this.refuse(text, `${name}() cannot read the text ${text.args}; write ${FUNCTIONS[name]}`)
    }
    const refused = Object.hasOwn(REFUSED_FUNCTIONS, name) ? REFUSED_FUNCTIONS[name] : undefined
    const names = Object.keys(FUNCTIONS)
    this.refuse(
      node,
      refused ?? `there is no function ${name}${suggest(name, names)}; the functions are ${names.join(', ')}`,
    )
  }

  #readAccess(node: SyntaxNode): void {
    const [left, right] = node.args as [SyntaxNode, string | SyntaxNode]
    const key = typeof right === 'string' ? right : right.op === 'value' ? right.args : undefined
    if (typeof key === 'string' && PROTOTYPE_NAMES.has(key)) this.refuse(node, `a field must not be named ${key}`)
    const isClient = left.op === 'id' && left.args === 'client' && !this.#items.includes('client')
    if (isClient && key === undefined)
      this.refuse(node, 'a field of client must be named: client.id, client.name, client.tags or client.metadata')
  }

  #readMap(node: SyntaxNode): void {
    const keys = new Set<unknown>()
    for (const [key] of node.args as [SyntaxNode, SyntaxNode][]) {
      if (key.op !== 'value' || typeof key.args !== 'string')
        return this.refuse(key, 'a key of a map must be a text in quotes')
      if (keys.has(key.args) || PROTOTYPE_NAMES.has(key.args))
        return this.refuse(key, `the key ${key.args} is used twice or not accepted`)
      keys.add(key.args)
    }
  }

  #readComprehension(node: SyntaxNode, receiver: SyntaxNode, args: readonly SyntaxNode[]): void {
    const isEmpty = (receiver.op === 'list' || receiver.op === 'map') && (receiver.args as unknown[]).length === 0
    if (isEmpty) return this.refuse(receiver, 'the list is empty, so the result is known without it')
    this.read(receiver, node)
    const [item, ...bodies] = args
    // The library says what is wrong with a call that has no name for the item.
    if (item?.op !== 'id') return
    const name = item.args as string
    if (Object.hasOwn(VARIABLE_TYPES, name) || TYPE_NAMES.has(name) || this.#items.includes(name)) {
      return this.refuse(item, `the name of the item must differ from ${name}, which is a name already`)
    }
    if (this.#comprehensions === MAX_COMPREHENSION_DEPTH) {
      return this.refuse(
        node,
        `only ${MAX_COMPREHENSION_DEPTH} of ${[...COMPREHENSIONS].join(', ')} may stand inside each other`,
      )
    }
    this.#comprehensions++
    this.#items.push(name)
    for (const body of bodies) this.read(body, node)
    this.#items.pop()
    this.#comprehensions--
  }
}

function suggest(name: string, names: readonly string[]): string {
  const nearest = nearestName(name, names)
  return nearest === undefined ? '' : `; did you mean ${nearest}?`
}

/** A list of numbers on the right of `in` is compared with integers and doubles: `value in [1, 2.5]`. */
function acceptMixedNumbers(node: SyntaxNode): void {
  const list = (node.args as SyntaxNode[])[1]
  if (list?.op !== 'list' || (list.args as unknown[]).length === 0) return
  const { check } = list.meta
  list.setMeta('check', (checker, self, context) => {
    const type = check(checker, self, context)
    const isNumeric = type.valueType?.name === 'int' || type.valueType?.name === 'double'
    return isNumeric ? checker.getType('list<dyn>') : type
  })
}

const TOO_MUCH_WORK = new EvaluationFailure(`the evaluation takes more than ${MAX_STEPS} steps over lists and texts`)
const TOO_LONG_A_LIST = new EvaluationFailure(
  `a list has more than ${MAX_ITEMS} items, which is too many to repeat an expression for`,
)

/** Steps of the running evaluation. Evaluations are synchronous and not nested. */
let steps = 0

export function beginSteps(): void {
  steps = 0
}

/** Errors in an operand of `||` are dropped by the language; the work that was done counts all the same. */
export function endSteps(): void {
  if (steps > MAX_STEPS) throw TOO_MUCH_WORK
}

function take(count: number): void {
  steps += count
  if (steps > MAX_STEPS) throw TOO_MUCH_WORK
}

const sizeOf = (value: object): number => (Array.isArray(value) ? value.length : Object.keys(value).length)

function countShallow(value: unknown): unknown {
  if (typeof value === 'string') take(value.length >> CHARS_PER_STEP_BITS)
  else if (typeof value === 'object' && value !== null) take(sizeOf(value))
  return value
}

function countDeep(value: unknown): unknown {
  countShallow(value)
  if (typeof value !== 'object' || value === null) return value
  if (Array.isArray(value)) for (const item of value) countDeep(item)
  else for (const item of Object.values(value)) countDeep(item)
  return value
}

const countItems = (stepsOfItem: number) => (value: unknown) => {
  if (typeof value !== 'object' || value === null) return value
  const size = sizeOf(value)
  if (size > MAX_ITEMS) throw TOO_LONG_A_LIST
  take(size * stepsOfItem)
  return value
}

/** The library checks its results only partly. */
function requireRange(value: unknown): unknown {
  if (typeof value === 'bigint') {
    if (value > MAX_INT || value < MIN_INT) throw new EvaluationFailure('an integer exceeds 64 bits')
  } else if (value instanceof Date) {
    const timeMs = value.getTime()
    if (!(timeMs >= MIN_TIME_MS && timeMs <= MAX_TIME_MS))
      throw new EvaluationFailure('a time is not within the years 1 to 9999')
  } else if (isDuration(value) && (value.seconds > MAX_DURATION_SECONDS || value.seconds < -MAX_DURATION_SECONDS)) {
    throw new EvaluationFailure('a duration exceeds 10000 years')
  }
  return value
}

/** The library does not export the class of durations. */
export const isDuration = (value: unknown): value is { seconds: bigint } =>
  typeof value === 'object' &&
  value !== null &&
  'nanos' in value &&
  'seconds' in value &&
  typeof value.seconds === 'bigint'

const DECIMAL = /^[+-]?(\d{1,40}(\.\d{0,40})?|\.\d{1,40})([eE][+-]?\d{1,4})?$/
const DURATION = /^[+-]?(\d{1,12}(\.\d{1,9})?(ns|us|ms|s|m|h))+$/
const INTEGER = /^[+-]?\d{1,19}$/
const RFC_3339 = /^\d{4}-\d\d-(\d\d)T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$/

/** Texts that JavaScript would read as another number or time, or as any. */
const TEXT_FORMS: Readonly<Record<string, (text: string) => boolean>> = {
  int: (text) => INTEGER.test(text),
  double: (text) => DECIMAL.test(text),
  duration: (text) => DURATION.test(text),
  timestamp: (text) => {
    const match = RFC_3339.exec(text)
    if (match === null) return false
    const [year, month] = [Number(text.slice(0, 4)), Number(text.slice(5, 7))]
    return (
      month >= 1 &&
      month <= 12 &&
      Number(match[1]) >= 1 &&
      Number(match[1]) <= new Date(Date.UTC(year, month, 0)).getUTCDate()
    )
  },
}

function requireForm(name: string, accepts: (text: string) => boolean): (value: unknown) => unknown {
  return (value) => {
    if (typeof value === 'string' && !accepts(value)) throw new EvaluationFailure(`${name}() cannot read the text`)
    return value
  }
}

/** The library folds letters beyond ASCII too. */
function foldAsciiOnly(node: SyntaxNode, receiver: SyntaxNode, name: 'lowerAscii' | 'upperAscii'): void {
  node.setMeta('evaluate', (evaluator, _self, context) => {
    const text = (evaluator as Evaluator).run(receiver, context)
    if (typeof text !== 'string') throw new EvaluationFailure(`${name}() needs a text`)
    if (name === 'lowerAscii') return text.replaceAll(/[A-Z]+/g, (letters) => letters.toLowerCase())
    return text.replaceAll(/[a-z]+/g, (letters) => letters.toUpperCase())
  })
}

/** The node that is evaluated for a node, which may stand for another. Undefined for literals and macros, whose values are bounded. */
function evaluatedNode(node: SyntaxNode): SyntaxNode | undefined {
  let target = node
  while (target.meta.alternate !== undefined) target = target.meta.alternate
  return target.op === 'value' || target.meta.macro !== undefined ? undefined : target
}

/** Gives the value of a node to `look`, which returns it or throws. */
function watch(node: SyntaxNode, look: (value: unknown) => unknown): void {
  const target = evaluatedNode(node)
  const evaluate = target?.meta.evaluate
  if (target === undefined || evaluate === undefined) return
  target.setMeta('evaluate', (evaluator, self, context) => look(evaluate(evaluator, self, context)))
}

/** Counts errors where the language drops them and goes on to the next item or operand: the library describes each of them. */
function watchErrors(node: SyntaxNode, stepsOfError: number): void {
  const target = evaluatedNode(node)
  const evaluate = target?.meta.evaluate
  if (target === undefined || evaluate === undefined) return
  target.setMeta('evaluate', (evaluator, self, context) => {
    try {
      return evaluate(evaluator, self, context)
    } catch (error) {
      take(stepsOfError)
      throw error
    }
  })
}

const FIXED_SIZE: ReadonlySet<string> = new Set([
  'int',
  'double',
  'bool',
  'null',
  'type',
  'google.protobuf.Timestamp',
  'google.protobuf.Duration',
])
const isOfFixedSize = (node: SyntaxNode): boolean =>
  FIXED_SIZE.has(node.checkedType?.name ?? '') ||
  (node.op === 'list' && childrenOf(node).every(({ op }) => op === 'value'))

function watchSizes(nodes: readonly SyntaxNode[], look: (value: unknown) => unknown): void {
  for (const node of nodes) if (!isOfFixedSize(node)) watch(node, look)
}

/** The range of a double is its own. */
function watchRange(node: SyntaxNode): void {
  if (node.checkedType?.name !== 'double' && node.checkedType?.name !== 'string') watch(node, requireRange)
}

/** Lets the checked tree of a source count its steps. */
export function limitWork(tree: SyntaxNode, source: string): void {
  limitNode(tree, STEPS_OF_ERROR + (source.length >> CHARS_PER_STEP_BITS), false)
}

function limitNode(node: SyntaxNode, stepsOfError: number, isRepeated: boolean): void {
  const call = callOf(node)
  if (call?.receiver !== undefined && COMPREHENSIONS.has(call.name)) {
    const [, ...bodies] = call.args
    limitNode(call.receiver, stepsOfError, isRepeated)
    for (const body of bodies) {
      limitNode(body, stepsOfError, true)
      watchErrors(body, stepsOfError)
    }
    const nodes = bodies.reduce((sum, body) => sum + countNodes(body), 0)
    watch(call.receiver, countItems(Math.ceil(nodes / NODES_PER_STEP)))
    return
  }
  for (const child of childrenOf(node)) limitNode(child, stepsOfError, isRepeated)
  if (call !== undefined) limitCall(node, call)
  else if (node.op === '+') {
    watchSizes(node.args as SyntaxNode[], countShallow)
    watchRange(node)
  } else if (node.op === '==' || node.op === '!=' || node.op === 'in') watchSizes(node.args as SyntaxNode[], countDeep)
  else if (node.op === '-_' || node.op === '-' || node.op === '/') watchRange(node)
  else if (isRepeated && (node.op === '||' || node.op === '&&')) {
    watchErrors((node.args as [SyntaxNode])[0], stepsOfError)
  }
}

function limitCall(node: SyntaxNode, { name, receiver, args }: Call): void {
  const accepts = Object.hasOwn(TEXT_FORMS, name) ? TEXT_FORMS[name] : undefined
  if (accepts !== undefined) for (const arg of args) watch(arg, requireForm(name, accepts))
  watchSizes(receiver === undefined ? args : [receiver, ...args], countShallow)
  if (name === 'int' || name === 'duration') watchRange(node)
  else if (receiver !== undefined && (name === 'lowerAscii' || name === 'upperAscii'))
    foldAsciiOnly(node, receiver, name)
}

const countNodes = (node: SyntaxNode): number => childrenOf(node).reduce((sum, child) => sum + countNodes(child), 1)
