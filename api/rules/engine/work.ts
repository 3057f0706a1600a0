/**
 * What an evaluation may do. A checked tree counts the work that it does, over lists and texts that a message can make long, and values stay within
 * the ranges of the language. The library lets the evaluation of each node be replaced.
 */
import { EvaluationFailure } from './expression-error.ts'
import { COMPREHENSIONS } from './language.ts'
import { MAX_NESTED_TYPES } from './reading.ts'
import { callOf, childrenOf } from './syntax-tree.ts'
import type { Call, Evaluator, SyntaxNode } from './syntax-tree.ts'
import { textFormOf } from './text-forms.ts'

/** The most items of a list that a function such as `all` repeats an expression for. */
export const MAX_ITEMS = 1000
/**
 * The most steps of one evaluation, which take a few milliseconds: an item of a list that is copied or compared is one step, so are 64 characters
 * of a text, and so are the parts of a repeated expression, eight at a time, for each item.
 */
export const MAX_STEPS = 20_000
const CHARS_PER_STEP_BITS = 6
const NODES_PER_STEP = 8
/** And one more for each 64 characters of the source, which an error looks at. */
const STEPS_OF_ERROR = 10

const MAX_INT = 2n ** 63n - 1n
const MIN_INT = -(2n ** 63n)
/** The language defines these bounds of timestamps and durations. */
const MIN_TIME_MS = Date.parse('0001-01-01T00:00:00Z')
const MAX_TIME_MS = Date.parse('9999-12-31T23:59:59.999Z')
const MAX_DURATION_SECONDS = 315_576_000_000n

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

const TOO_DEEP = new EvaluationFailure(`a value has more than ${MAX_NESTED_TYPES} lists and maps inside each other`)

/**
 * The library makes a type of each value that it finds an operator or a function for, from the first items, and keeps it for ever: values of
 * messages must not have as many types as they like.
 */
function requireFewLevels(value: unknown): unknown {
  let inner = value
  for (let levels = 0; typeof inner === 'object' && inner !== null; levels++) {
    if (levels === MAX_NESTED_TYPES) throw TOO_DEEP
    inner = firstItem(inner)
  }
  return value
}

function firstItem(value: object): unknown {
  if (Array.isArray(value)) return value[0]
  for (const key in value) if (Object.hasOwn(value, key)) return (value as Record<string, unknown>)[key]
  return undefined
}

function countShallow(value: unknown): unknown {
  if (typeof value === 'string') take(value.length >> CHARS_PER_STEP_BITS)
  else if (typeof value === 'object' && value !== null) {
    requireFewLevels(value)
    take(sizeOf(value))
  }
  return value
}

function countCompared(value: unknown): unknown {
  requireFewLevels(value)
  countDeep(value)
  return value
}

function countDeep(value: unknown): void {
  if (typeof value === 'string') take(value.length >> CHARS_PER_STEP_BITS)
  if (typeof value !== 'object' || value === null) return
  take(sizeOf(value))
  if (Array.isArray(value)) for (const item of value) countDeep(item)
  else for (const item of Object.values(value)) countDeep(item)
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

/** Texts are compared at once, and those of different lengths not at all. */
const isNoText = (node: SyntaxNode): boolean => node.checkedType?.name !== 'string'

function watchSizes(nodes: readonly SyntaxNode[], look: (value: unknown) => unknown): void {
  for (const node of nodes) if (!isOfFixedSize(node)) watch(node, look)
}

/** Operands whose types are found when they are evaluated. */
function watchLevels(nodes: readonly SyntaxNode[]): void {
  for (const node of nodes) if (node.checkedType?.hasDynType === true) watch(node, requireFewLevels)
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
    watchLevels(bodies)
    const nodes = bodies.reduce((sum, body) => sum + countNodes(body), 0)
    watch(call.receiver, countItems(Math.ceil(nodes / NODES_PER_STEP)))
    return
  }
  const children = childrenOf(node)
  for (const child of children) limitNode(child, stepsOfError, isRepeated)
  if (call !== undefined) limitCall(node, call)
  else if (node.op === '+') watchSizes(children, countShallow)
  else if (node.op === '==' || node.op === '!=' || node.op === 'in')
    watchSizes(children.filter(isNoText), countCompared)
  // Items of a list, and the value that a field is read of, have their types when they are used.
  else if (node.op !== 'list' && node.op !== 'map' && node.op !== '.' && node.op !== '[]') watchLevels(children)
  if (RANGED.has(node.op)) watchRange(node)
  else if (isRepeated && (node.op === '||' || node.op === '&&')) watchErrors(children[0] as SyntaxNode, stepsOfError)
}

/** Operators whose results can be beyond the ranges of the language. */
const RANGED: ReadonlySet<string> = new Set(['+', '-', '-_', '/'])

function limitCall(node: SyntaxNode, { name, receiver, args }: Call): void {
  const accepts = textFormOf(name)
  if (accepts !== undefined) for (const arg of args) watch(arg, requireForm(name, accepts))
  watchSizes(receiver === undefined ? args : [receiver, ...args], countShallow)
  if (name === 'int' || name === 'duration') watchRange(node)
  else if (receiver !== undefined && (name === 'lowerAscii' || name === 'upperAscii'))
    foldAsciiOnly(node, receiver, name)
}

const countNodes = (node: SyntaxNode): number => childrenOf(node).reduce((sum, child) => sum + countNodes(child), 1)
