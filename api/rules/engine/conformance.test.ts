/** The conformance tests of the language that the limits of this folder let through (test/fixtures/cel). */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { EvaluationFailure, ExpressionError } from './expression-error.ts'
import { compileExpression } from './expression.ts'
import { RuleClient } from './variables.ts'
import type { RuleVariables } from './variables.ts'

const FILE = join(import.meta.dirname, '../../../test/fixtures/cel/conformance.json')
const MIN_ROWS = 650

/** Where an expression differs from the language. A row that no longer differs fails, so that it is removed. */
const DIFFERENCES: readonly { because: string; expressions: readonly string[] }[] = [
  {
    because: 'an integer and a double are compared exactly, also beyond 2^53; the tests compare them as doubles',
    expressions: [
      'dyn(9223372036854775807) < 9223372036854775808.0',
      'dyn(9223372036854775808.0) > 9223372036854775807',
      'dyn(9223372036854775808.0) <= 9223372036854775807',
      'dyn(9223372036854775807) >= 9223372036854775808.0',
    ],
  },
  { because: 'the smallest integer is read from a double too', expressions: ['int(-9223372036854775808.0)'] },
  {
    because:
      'a time has milliseconds, and a difference of times is not limited to the 292 years of nanoseconds in 64 bits',
    expressions: [
      "timestamp('0001-01-01T00:00:01.999999999Z') + duration('999999999ns') == timestamp('0001-01-01T00:00:02.999999998Z')",
      "timestamp('9999-12-31T23:59:59.999999999Z') + duration('1ns')",
      "timestamp('9999-12-31T23:59:59Z') - timestamp('0001-01-01T00:00:00Z')",
      "timestamp('0001-01-01T00:00:00Z') - timestamp('9999-12-31T23:59:59Z')",
    ],
  },
  {
    because: 'JavaScript trims other characters beyond Latin',
    expressions: [
      String.raw`'\u0085\u00a0\u1680text'.trim() == 'text'`,
      String.raw`'\u180etext\u200b\u200c\u200d\u2060\ufeff'.trim() == '\u180etext\u200b\u200c\u200d\u2060\ufeff'`,
    ],
  },
]

const VARIABLES: RuleVariables = {
  time: new Date('2026-11-29T22:30:00Z'),
  channel: '',
  subtopic: '',
  protocol: '',
  client: new RuleClient('', '', [], {}),
}

const ERROR = { error: true }

/** A value with its type, as the rows have it. */
function tagged(value: unknown): unknown {
  if (value === null) return { null: true }
  if (typeof value === 'bigint') return { int: String(value) }
  if (typeof value === 'number') {
    return { double: Number.isFinite(value) ? value : String(value).toLowerCase().replace('infinity', 'inf') }
  }
  if (Array.isArray(value)) return value.map(tagged)
  if (typeof value !== 'object') return value
  if (Object.getPrototypeOf(value) === Object.prototype) {
    return { map: Object.fromEntries(Object.entries(value).map(([key, field]) => [key, tagged(field)])) }
  }
  const { name } = value as { name?: string }
  return name === undefined ? { other: value } : { type: name === 'null' ? 'null_type' : name }
}

function resultOf(source: string): unknown {
  try {
    return tagged(compileExpression(source, 'any').evaluate(VARIABLES))
  } catch (error) {
    if (error instanceof ExpressionError || error instanceof EvaluationFailure) return ERROR
    throw error
  }
}

test('expressions have the results that the language defines', () => {
  const rows = JSON.parse(readFileSync(FILE, 'utf8')) as [source: string, result?: unknown][]
  const differing = new Set(DIFFERENCES.flatMap(({ expressions }) => expressions))
  const asDefined = (source: string, result: unknown) => {
    try {
      expect(resultOf(source)).toEqual(result)
      return true
    } catch {
      return false
    }
  }
  const different = rows.filter(([source, result = ERROR]) => !asDefined(source, result)).map(([source]) => source)
  expect(different.toSorted()).toEqual([...differing].toSorted())
  expect(rows.length).toBeGreaterThan(MIN_ROWS)
})
