/**
 * The functions of a template: those of Go's text/template that do not generate code, and `toJSON`, `default` and
 * `required` of Magistrala. They are pure. `callFunction` calls them and accounts for the size of arguments and
 * results.
 */
import { isExactInteger } from '#core/exact-integers.ts'
import { Missing, isList, isRecord, isTrue, keysOf } from './values.ts'
import type { Value } from './values.ts'

/** Helpers for functions: errors with the line, and accounting of long texts. */
export type FunctionHelp = {
  fail(message: string): never
  /** Throws when the template exceeds its limit. */
  pay(characters: number): void
}

/** Helpers for the implementation of functions, which do not account. */
type Refusing = Pick<FunctionHelp, 'fail'>

type TemplateFunction = {
  least: number
  most: number
  call(args: readonly Value[], help: Refusing): Value
}

const MANY = 32
const MAX_WIDTH = 64
const MAX_PRECISION = 20

/** `args` has at least `least` items: the parser checks the number. */
function of(least: number, most: number, call: TemplateFunction['call']): TemplateFunction {
  return { least, most, call }
}

const first = (args: readonly Value[]): Value => args[0] ?? null
const second = (args: readonly Value[]): Value => args[1] ?? null

export const FUNCTIONS = {
  and: of(1, MANY, (args) => args.find((one) => !isTrue(one)) ?? args.at(-1) ?? null),
  or: of(1, MANY, (args) => args.find(isTrue) ?? args.at(-1) ?? null),
  not: of(1, 1, (args) => !isTrue(first(args))),
  eq: of(2, MANY, (args, help) => args.slice(1).some((one) => isEqual(first(args), one, help))),
  ne: of(2, 2, (args, help) => !isEqual(first(args), second(args), help)),
  lt: of(2, 2, (args, help) => compare(args, help) < 0),
  le: of(2, 2, (args, help) => compare(args, help) <= 0),
  gt: of(2, 2, (args, help) => compare(args, help) > 0),
  ge: of(2, 2, (args, help) => compare(args, help) >= 0),
  len: of(1, 1, (args, help) => lengthOf(first(args), help)),
  index: of(1, MANY, (args, help) => args.slice(1).reduce((value, key) => elementOf(value, key, help), first(args))),
  print: of(0, MANY, printed),
  printf: of(1, MANY, formatted),
  urlquery: of(1, 1, (args, help) =>
    encodeURIComponent(wellFormed(textOf(first(args), help), help)).replaceAll('%20', '+'),
  ),
  toJSON: of(1, 1, (args, help) => jsonOf(first(args), help)),
  default: of(2, 2, (args) => (isEmpty(second(args)) ? first(args) : second(args))),
  required: of(2, 2, (args, help) =>
    isEmpty(second(args)) ? help.fail(`${textOf(first(args), help)} is required and has no value`) : second(args),
  ),
} as const satisfies Record<string, TemplateFunction>

export type FunctionName = keyof typeof FUNCTIONS

export function isFunction(name: string): name is FunctionName {
  return Object.hasOwn(FUNCTIONS, name)
}

/**
 * Calls a function with the number of arguments that the parser has checked, and accounts for the arguments and the
 * result.
 */
export function callFunction(name: FunctionName, args: readonly Value[], help: FunctionHelp): Value {
  for (const one of args) help.pay(sizeOf(one))
  // The result accounts for functions such as toJSON, whose output is larger than its argument.
  const result = FUNCTIONS[name].call(args, help)
  help.pay(sizeOf(result))
  return result
}

/** Number of characters of a text or entries of a list or object, plus 1, so that every call costs something. */
function sizeOf(value: Value): number {
  if (typeof value === 'string') return value.length + 1
  if (isList(value)) return value.length + 1
  return isRecord(value) ? keysOf(value).length + 1 : 1
}

/** Throws for a lone surrogate, which UTF-8 cannot represent. */
export function wellFormed(text: string, { fail }: Refusing): string {
  return text.isWellFormed() ? text : fail('a text contains a lone surrogate')
}

/** True for a missing value, null and an empty text. false and 0 are values. */
const isEmpty = (value: Value) => value === null || value === '' || value instanceof Missing

/** Returns the text of a scalar. Fails for missing values, lists and objects. */
export function textOf(value: Value, { fail }: Refusing): string {
  if (typeof value === 'string') return value
  if (typeof value === 'number' || typeof value === 'boolean') return String(value)
  if (value instanceof Missing) return fail(`${value.path} has no value`)
  if (value === null) return fail('a value is null')
  return fail(`cannot print ${isList(value) ? 'a list' : 'an object'}: use toJSON`)
}

function jsonOf(value: Value, { fail }: Refusing): string {
  return value instanceof Missing ? fail(`${value.path} has no value`) : JSON.stringify(value)
}

type Plain = string | number | boolean

function plain(value: Value, { fail }: Refusing): Plain {
  if (value instanceof Missing) return fail(`${value.path} has no value to compare`)
  if (typeof value === 'object') return fail('only texts, numbers and booleans can be compared')
  return value
}

function isEqual(left: Value, right: Value, help: Refusing): boolean {
  // Templates use `eq .Vars.x nil` to test whether a value exists.
  if (left === null || right === null) return isNothing(left) && isNothing(right)
  return plain(left, help) === plain(right, help)
}

const isNothing = (value: Value) => value === null || value instanceof Missing

function compare(args: readonly Value[], help: Refusing): number {
  const [left, right] = [plain(first(args), help), plain(second(args), help)]
  if (typeof left !== typeof right || typeof left === 'boolean')
    return help.fail('only two numbers or two texts can be ordered')
  return left < right ? -1 : Number(left > right)
}

function lengthOf(value: Value, help: Refusing): number {
  if (typeof value === 'string') return Buffer.byteLength(value)
  if (isList(value)) return value.length
  if (isRecord(value)) return keysOf(value).length
  return help.fail(
    value instanceof Missing ? `${value.path} has no value` : 'only texts, lists and objects have a length',
  )
}

function elementOf(value: Value, key: Value, help: Refusing): Value {
  const found = foundIn(value, key, help)
  return isExactInteger(found) ? help.fail('the element is an integer above 2^53: store it as a text') : found
}

function foundIn(value: Value, key: Value, { fail }: Refusing): Value {
  if (value instanceof Missing) return value
  if (isRecord(value) && typeof key === 'string')
    return Object.hasOwn(value, key) ? (value[key] ?? null) : new Missing(`index … ${JSON.stringify(key)}`)
  if (isList(value) && typeof key === 'number' && Number.isInteger(key))
    return key >= 0 && key < value.length ? (value[key] ?? null) : new Missing(`index … ${key}`)
  return fail('index requires an object and a text, or a list and an integer')
}

/** Like Go's Sprint: adds a blank between two operands when neither is a text. */
function printed(args: readonly Value[], help: Refusing): string {
  let text = ''
  for (const [place, value] of args.entries()) {
    const before = args[place - 1]
    if (place > 0 && typeof before !== 'string' && typeof value !== 'string') text += ' '
    text += textOf(value, help)
  }
  return text
}

const VERB = /%(0?)(\d*)(?:\.(\d+))?([a-zA-Z%])/g

function formatted(args: readonly Value[], help: Refusing): string {
  const [format, ...values] = args
  if (typeof format !== 'string') return help.fail('the first argument of printf must be a text')
  let used = 0
  const text = format.replaceAll(
    VERB,
    (_all, zero: string, width: string, precision: string | undefined, verb: string) => {
      if (verb === '%') return '%'
      const value = values[used++]
      if (value === undefined) return help.fail('printf has fewer values than verbs')
      if (Number(width) > MAX_WIDTH || Number(precision ?? 0) > MAX_PRECISION)
        return help.fail('the width of printf is too large')
      return verbOf(verb, precision, value, help).padStart(Number(width), zero === '' ? ' ' : zero)
    },
  )
  if (used < values.length) return help.fail('printf has more values than verbs')
  return text
}

function verbOf(verb: string, precision: string | undefined, value: Value, help: Refusing): string {
  if (verb === 's' || verb === 'v' || verb === 't') return textOf(value, help)
  if (verb === 'q') return JSON.stringify(textOf(value, help))
  if (typeof value !== 'number') return help.fail(`%${verb} of printf requires a number`)
  if (verb === 'f') return value.toFixed(Number(precision ?? 6))
  if ((verb === 'd' || verb === 'x') && Number.isInteger(value)) return value.toString(verb === 'x' ? 16 : 10)
  return help.fail(`%${verb} of printf is not supported: use %s %v %t %q, or %d %x %f for numbers`)
}
