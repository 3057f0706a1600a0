/**
 * Texts and JSON documents with expressions in `{{ }}`, for messages, mails and webhooks. A value that a record does not have is an empty text,
 * in JSON null: a notification with a gap is better than none. The output is bounded, because the source and each inserted value are.
 */
import { formatTime } from '#core/time.ts'
import { EvaluationFailure, ExpressionError } from './expression-error.ts'
import { compileExpression } from './expression.ts'
import { isDuration } from './work.ts'
import type { Expression } from './expression.ts'
import { RuleClient } from './variables.ts'
import type { RuleVariables } from './variables.ts'
import type { WindowReader, WindowRequest } from './window-reader.ts'

export const MAX_TEMPLATE_BYTES = 16 * 1024
export const MAX_INSERTIONS = 64
/** How many characters of an inserted value are kept; the rest is cut off. */
export const MAX_INSERTED_CHARS = 1024

export type Template = {
  readonly source: string
  readonly windows: readonly WindowRequest[]
  render(variables: RuleVariables, windows?: WindowReader): string
}

/** Texts and expressions in turn. */
type Parts = readonly (string | Expression)[]
type Rendering = { variables: RuleVariables; windows: WindowReader | undefined }

/** Throws ExpressionError, which names `path`. */
export function compileTextTemplate(source: string, path = 'template'): Template {
  checkSize(source, path)
  const parts = partsOf(source, path)
  checkInsertions(parts, source, path)
  return {
    source,
    windows: windowsOf(parts),
    render: (variables, windows) => renderText(parts, { variables, windows }),
  }
}

/**
 * A JSON document with expressions in its texts. A text that is one expression becomes its value, so `"{{ value }}"` is a number; others stay
 * texts. Inserted values cannot change the document, whatever they contain. Throws ExpressionError, which names `path`.
 */
export function compileJsonTemplate(source: string, path = 'template'): Template {
  checkSize(source, path)
  let document: unknown
  try {
    document = JSON.parse(source)
  } catch {
    throw new ExpressionError(
      path,
      source,
      0,
      'a JSON document is accepted, with expressions in its texts: {"text": "{{ name }} is {{ value }}"}',
    )
  }
  const all: (string | Expression)[] = []
  const build = compileValue(document, path, all)
  checkInsertions(all, source, path)
  return {
    source,
    windows: windowsOf(all),
    render: (variables, windows) => JSON.stringify(build({ variables, windows })),
  }
}

function checkSize(source: string, path: string): void {
  if (Buffer.byteLength(source) <= MAX_TEMPLATE_BYTES) return
  throw new ExpressionError(path, source, 0, `a template has at most ${MAX_TEMPLATE_BYTES} bytes`)
}

function checkInsertions(parts: Parts, source: string, path: string): void {
  if (parts.filter((part) => typeof part !== 'string').length <= MAX_INSERTIONS) return
  throw new ExpressionError(path, source, 0, `a template has at most ${MAX_INSERTIONS} expressions`)
}

const windowsOf = (parts: Parts): WindowRequest[] =>
  parts.flatMap((part) => (typeof part === 'string' ? [] : part.windows))

function partsOf(source: string, path: string): Parts {
  const parts: (string | Expression)[] = []
  let at = 0
  while (at < source.length) {
    const begin = source.indexOf('{{', at)
    if (begin < 0) break
    if (begin > at) parts.push(source.slice(at, begin))
    const end = endOfExpression(source, begin + 2)
    if (end === undefined) throw new ExpressionError(path, source, begin, '}} must follow, as in {{ value }}')
    parts.push(compileInserted(source, begin + 2, end, path))
    at = end + 2
  }
  if (at < source.length) parts.push(source.slice(at))
  return parts
}

/** Where `}}` is, outside of texts and of maps. */
function endOfExpression(source: string, begin: number): number | undefined {
  let quote: string | undefined
  let maps = 0
  for (let at = begin; at < source.length; at++) {
    const char = source[at] as string
    if (quote !== undefined) {
      if (char === '\\') at++
      else if (char === quote) quote = undefined
    } else if (char === '"' || char === "'") quote = char
    else if (char === '{') maps++
    else if (char === '}') {
      if (maps > 0) maps--
      else if (source[at + 1] === '}') return at
      else return undefined
    }
  }
  return undefined
}

function compileInserted(source: string, begin: number, end: number, path: string): Expression {
  const text = source.slice(begin, end)
  try {
    return compileExpression(text, 'any', path)
  } catch (error) {
    if (!(error instanceof ExpressionError)) throw error
    const lines = text.split('\n').slice(0, error.line - 1)
    const offset = lines.reduce((sum, line) => sum + line.length + 1, error.column - 1)
    throw new ExpressionError(path, source, begin + offset, error.sentence)
  }
}

function compileValue(value: unknown, path: string, all: (string | Expression)[]): (rendering: Rendering) => unknown {
  if (typeof value === 'string') {
    const parts = partsOf(value, path)
    all.push(...parts)
    const [only] = parts
    if (parts.length === 1 && typeof only === 'object') return (rendering) => insert(only, rendering, jsonValue)
    return (rendering) => renderText(parts, rendering)
  }
  if (Array.isArray(value)) {
    const items = value.map((item, index) => compileValue(item, `${path}/${index}`, all))
    return (rendering) => items.map((item) => item(rendering))
  }
  if (typeof value !== 'object' || value === null) return () => value
  const fields = Object.entries(value).map(
    ([name, field]) => [name, compileValue(field, `${path}/${name}`, all)] as const,
  )
  return (rendering) => Object.fromEntries(fields.map(([name, field]) => [name, field(rendering)]))
}

/** Gives the value of an expression to `form`. A value is absent if it has no result, or is nested so deeply that it cannot be written. */
function insert<T>(expression: Expression, { variables, windows }: Rendering, form: (value: unknown) => T): T {
  try {
    return form(expression.evaluate(variables, windows))
  } catch (error) {
    if (error instanceof EvaluationFailure || error instanceof RangeError) return form(undefined)
    throw error
  }
}

function renderText(parts: Parts, rendering: Rendering): string {
  let text = ''
  for (const part of parts) text += typeof part === 'string' ? part : cut(insert(part, rendering, formatValue))
  return text
}

function cut(text: string): string {
  if (text.length <= MAX_INSERTED_CHARS) return text
  // Not within a pair of surrogates: half of a character is no valid text.
  return `${text.slice(0, MAX_INSERTED_CHARS - 1).replace(/[\uD800-\uDBFF]$/, '')}…`
}

const isPlain = (value: object): boolean =>
  Array.isArray(value) || value instanceof RuleClient || Object.getPrototypeOf(value) === Object.prototype

function formatValue(value: unknown): string {
  if (value === undefined || value === null) return ''
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? '' : formatTime(value)
  if (typeof value === 'string') return value
  if (typeof value !== 'object') return String(value as number | bigint | boolean)
  if (isPlain(value)) return JSON.stringify(value, jsonField)
  // The library writes -1.5s as -10.5s.
  if (isDuration(value)) return `${Number(value) / 1000}s`
  return (value as { toString(): string }).toString()
}

/** A value of the language as one of JSON. Integers beyond those that JSON readers keep exact, and long lists, are texts. */
function jsonValue(value: unknown): unknown {
  if (value === undefined || value === null) return null
  if (typeof value === 'boolean') return value
  if (typeof value === 'number') return Number.isFinite(value) ? value : null
  if (typeof value === 'bigint') return exactNumber(value)
  const text = formatValue(value)
  const isShortJson = typeof value === 'object' && isPlain(value) && text.length <= MAX_INSERTED_CHARS
  return isShortJson ? (JSON.parse(text) as unknown) : cut(text)
}

const exactNumber = (value: bigint): number | string =>
  Number.isSafeInteger(Number(value)) ? Number(value) : String(value)

function jsonField(_name: string, value: unknown): unknown {
  return typeof value === 'bigint' ? exactNumber(value) : value
}
