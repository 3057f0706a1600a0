import { describe, expect, it } from 'vitest'
import { EvaluationFailure, ExpressionError } from './expression-error.ts'
import { MAX_EXPRESSION_BYTES, compileExpression } from './expression.ts'
import type { Wanted } from './expression.ts'
import { MAX_ITEMS } from './fence.ts'
import { RuleClient } from './variables.ts'
import type { RuleVariables } from './variables.ts'
import type { WindowReader, WindowRequest } from './window-reader.ts'

function someVariables(fields: Partial<RuleVariables> = {}): RuleVariables {
  return {
    value: 30,
    name: 'temperature',
    unit: 'Cel',
    time: new Date('2026-11-29T22:30:00Z'),
    channel: 'a-channel',
    subtopic: 'hall.east',
    protocol: 'mqtt',
    client: new RuleClient('a-client', 'boiler', ['cold', 'north'], { floor: '2', limit: 21.5 }),
    ...fields,
  }
}

const read = (source: string, fields?: Partial<RuleVariables>, windows?: WindowReader) =>
  compileExpression(source, 'any').evaluate(someVariables(fields), windows)

function refusal(source: string, want: Wanted = 'any'): ExpressionError {
  try {
    compileExpression(source, want, '/condition')
  } catch (error) {
    if (error instanceof ExpressionError) return error
    throw error
  }
  throw new Error(`${source} was accepted`)
}

function failure(source: string, fields?: Partial<RuleVariables>, windows?: WindowReader): string {
  const expression = compileExpression(source, 'any')
  try {
    expression.evaluate(someVariables(fields), windows)
  } catch (error) {
    if (error instanceof EvaluationFailure) return error.message
    throw error
  }
  throw new Error(`${source} has a result`)
}

describe('values', () => {
  it.each<[source: string, result: unknown]>([
    ['value > 29.5 && name == "temperature" && unit != "K"', true],
    ['subtopic.split(".")[1] == "east" && protocol == "mqtt" && channel.startsWith("a-")', true],
    ['client.tags.exists(tag, tag == "cold") && client.id == "a-client" && client.name.contains("oil")', true],
    ['client.metadata.floor in ["1", "2"] && value > client.metadata.limit', true],
    ['has(client.metadata.floor) && !has(client.metadata.muted)', true],
    ['time > timestamp("2026-11-29T22:29:59Z")', true],
    ['time - timestamp("2026-11-29T22:00:00Z") >= duration("30m")', true],
    ['type(value) == double', true],
  ])('%s', (source, result) => {
    expect(read(source)).toBe(result)
  })

  it.each<[source: string, result: unknown]>([
    ['value * 9 / 5 + 32', 86],
    ['value - 1', 29],
    ['2 * 1.5', 3],
    ['7 % 2.5', 2],
    ['7.5 % 2', 1.5],
    ['7 / 2', 3n],
    ['7 / 2.0', 3.5],
    ['1 < 1.5 && 1.5 > 1 && 1 == 1.0', true],
    ['value == 30 && value != 31 && value in [1, 30] && !(value in [1.5, 2])', true],
    ['9007199254740993 == 9007199254740992.0', false],
    ['json.v == 2 && 2 == json.v && json.v != 3 && json.l == [1, 2] && json == {"v": 2, "l": [1, 2]}', true],
    ['json.v + 1', 3],
    ['json.v in [1, 2]', true],
    ['json.l.map(x, x * 2)', [2, 4]],
    ['abs(-3) + 1', 4n],
    ['abs(json.v - 5)', 3],
    ['round(value / 7)', 4],
    ['round(value / 7, 2)', 4.29],
  ])('mixes integers and doubles: %s', (source, result) => {
    expect(read(source, { json: { v: 2, l: [1, 2] } })).toEqual(result)
  })

  it('has the local time of a zone, and daylight saving', () => {
    expect(read('hour(time, "Europe/Berlin")')).toBe(23n)
    expect(read('hour(time, "UTC") * 100 + minute(time, "UTC")')).toBe(2230n)
    expect(read('weekday(time, "UTC")')).toBe(7n)
    expect(read('weekday(time, "Asia/Tokyo")')).toBe(1n)
    expect(read('[year(time, "UTC"), month(time, "UTC"), day(time, "UTC")]')).toEqual([2026n, 11n, 29n])
    const hours = ['2026-03-29T00:59:59Z', '2026-03-29T01:00:00Z', '2026-10-25T00:30:00Z', '2026-10-25T01:30:00Z']
    expect(hours.map((time) => read('hour(time, "Europe/Berlin")', { time: new Date(time) }))).toEqual([1n, 3n, 2n, 2n])
  })

  it('changes only letters of ASCII', () => {
    expect(read('"ÄBc".lowerAscii() + "äBc".upperAscii()')).toBe('ÄbcäBC')
  })

  it('gives a boolean or a number where one is wanted', () => {
    const variables = someVariables({ json: { on: true, v: 2, text: 'x' } })
    expect(compileExpression('json.on', 'boolean').evaluate(variables)).toBe(true)
    expect(compileExpression('size(name) + 1', 'number').evaluate(variables)).toBe(12)
    expect(compileExpression('json.v', 'number').evaluate(variables)).toBe(2)
    expect(() => compileExpression('json.text', 'boolean').evaluate(variables)).toThrow(EvaluationFailure)
    expect(() => compileExpression('1.0 / 0', 'number').evaluate(variables)).toThrow('the result is no finite number')
    expect(refusal('value', 'boolean').sentence).toBe(
      'the result must be true or false, as of value > 30.0, and it is double',
    )
    expect(refusal('name', 'number').sentence).toContain('the result must be a number')
  })
})

describe('what a record does not have', () => {
  it('is a failure, and no error of the language', () => {
    const fields = { value: undefined }
    expect(failure('value > 30', fields)).toBe('the record has no value')
    expect(failure('name == "temperature" && value > 30', fields)).toBe('the record has no value')
    expect(failure('json.v > 1', { json: {} })).toBe('no such key: v')
    expect(failure('json.v > 1')).toBe('the record has no json')
  })

  it('does not matter in an alternative that decides without it', () => {
    const fields = { value: undefined, string_value: 'on' }
    expect(read('value > 30 || string_value == "on"', fields)).toBe(true)
    expect(read('name == "humidity" && value > 30', fields)).toBe(false)
    expect(read('name == "temperature" ? 1.0 : value', fields)).toBe(1)
  })

  it('differs from null', () => {
    expect(read('has(json.k) && json.k == null && !has(json.m)', { json: { k: null } })).toBe(true)
  })
})

describe('windows', () => {
  it('are named when the expression is compiled, and read for the record', () => {
    const expression = compileExpression('mean("5m") > 30 && last("fan") == 0 && count("90s", "fan") > 2', 'boolean')
    const windows: WindowRequest[] = [
      { function: 'mean', series: undefined, durationMs: 300_000 },
      { function: 'last', series: 'fan', durationMs: undefined },
      { function: 'count', series: 'fan', durationMs: 90_000 },
    ]
    expect(expression.windows).toEqual(windows)
    const asked: WindowRequest[] = []
    const answers = { mean: 31, last: 0, count: 3 } as Record<string, number>
    const reader: WindowReader = {
      read: (request) => {
        asked.push(request)
        return answers[request.function]
      },
    }
    expect(expression.evaluate(someVariables(), reader)).toBe(true)
    expect(asked).toEqual(windows)
  })

  it('without enough values, or without a reader, have no result', () => {
    expect(failure('rate("5m") > 1', {}, { read: () => undefined })).toBe('rate() has too few values in its window')
    expect(failure('rate("5m") > 1')).toBe('the windows of the series are not available')
  })

  it.each([
    'mean("25h")',
    'mean("0s")',
    'mean("")',
    'mean("5 minutes")',
    'mean(name)',
    'mean("5m", name)',
    'last(name)',
    'mean()',
    'last()',
  ])('are not accepted as %s', (source) => {
    expect(refusal(source).sentence).toMatch(/such as "90s"|in quotes|accepted: /)
  })
})

describe('refusals', () => {
  it('say the place, the fault and what is accepted', () => {
    const error = refusal('value > 30.0 &&\n  nmae == "x"')
    expect(error).toMatchObject({ kind: 'malformed', line: 2, column: 3 })
    expect(error.message).toMatch(
      /^condition is invalid at line 2, column 3: there is no name nmae; did you mean name\?; the names are value, /,
    )
    expect(error.details).toEqual([{ path: '/condition', message: error.message.replace('condition ', '') }])
  })

  it.each<[source: string, sentence: string]>([
    ['value >', 'unexpected token: the end; an expression such as'],
    ['(value > 3', 'expected ), got the end'],
    ['value > "x"', 'there is no operator double > string'],
    ['name.startsWith(3)', 'accepted: text.startsWith("text")'],
    ['nmae == 1', 'there is no name nmae; did you mean name?'],
    ['sise(name)', 'there is no function sise; did you mean size?'],
    ['client.tagz', 'no such key: tagz'],
    ['name.matches("a+")', 'regular expressions are not accepted; use startsWith'],
    ['1u < 2u', 'write 1 instead of 1u'],
    ['uint(3)', 'unsigned integers are not accepted'],
    ['b"x" == b"x"', 'bytes are not accepted'],
    ['bytes(name) == bytes(unit)', 'bytes are not accepted'],
    ['9223372036854775808', 'an integer must be between'],
    ['-9223372036854775809', 'an integer must be between'],
    ['{1: "a"}', 'a key of a map must be a text'],
    ['{name: 1}', 'a key of a map must be a text'],
    ['{"a": 1, "a": 2}', 'is used twice'],
    ['[].all(x, x > 0)', 'the list is empty'],
    ['{}.exists(x, true)', 'the list is empty'],
    ['json.map(a, json.map(b, json.map(c, c)))', 'only 2 of all, exists'],
    ['json.exists(value, value > 1)', 'the name of the item must differ from value'],
    ['json.exists(a, json.exists(a, true))', 'the name of the item must differ from a'],
    ['time.getHours() > 7', 'hour(time, "Europe/Berlin")'],
    ['(time - time).getMilliseconds() > 7', 'compare durations with durations'],
    ['hour(time, "Mars/Olympus")', 'must be a time zone'],
    ['hour(time, name)', 'must be a text in quotes'],
    ['hour(name, "UTC")', 'hour() needs a time'],
    ['timestamp("2026-02-30T00:00:00Z") < time', 'timestamp() cannot read'],
    ['timestamp("2026-02-03 00:00") < time', 'timestamp() cannot read'],
    ['duration("tomorrow") == duration("1h")', 'duration() cannot read'],
    ['double("0x10") + int("")', 'double() cannot read'],
    ['google.protobuf.Timestamp', 'there is no name google'],
    ['cel.bind(a, 1, a)', 'there is no function bind'],
    ['optional.none()', 'there is no function none'],
    ['json.?a', 'expected a name, got ?'],
  ])('%s', (source, sentence) => {
    expect(refusal(source).sentence).toContain(sentence)
  })

  it.each([
    'json.__proto__',
    'json["__proto__"]',
    'json.a.constructor',
    'client.constructor.constructor',
    'client["constructor"]',
    'client[name]',
    'name.prototype',
    '{"__proto__": 1}',
    'json.exists(__proto__, true)',
    '__proto__',
    'constructor',
    'this',
    'globalThis',
    'value.toString()',
    'name.valueOf()',
    'hasOwnProperty(name)',
  ])('lead nowhere behind values: %s', (source) => {
    expect(refusal(source)).toBeInstanceOf(ExpressionError)
  })

  it('limit the length, the parts and the depth', () => {
    const long = `name == "${'a'.repeat(MAX_EXPRESSION_BYTES)}"`
    expect(refusal(long).sentence).toBe('an expression has at most 4096 bytes')
    expect(refusal(`name == "${'ä'.repeat(MAX_EXPRESSION_BYTES / 2)}"`).sentence).toContain('4096 bytes')
    for (const source of [
      `1${'+1'.repeat(1000)}`,
      `${'('.repeat(70)}1${')'.repeat(70)}`,
      `${'!'.repeat(3000)}true`,
      '['.repeat(2000),
    ]) {
      expect(refusal(source).sentence).toBe('an expression has at most 1000 parts, and 64 inside each other')
    }
    expect(read(`1${'+1'.repeat(490)}`)).toBe(491n)
    expect(read(`${'!'.repeat(400)}true`)).toBe(true)
  })
})

describe('the work of an evaluation', () => {
  const items = (count: number) => Array.from({ length: count }, (_, index) => index)

  it('is bounded for lists', () => {
    expect(read('json.all(x, x >= 0)', { json: items(MAX_ITEMS) })).toBe(true)
    expect(failure('json.all(x, x >= 0)', { json: items(MAX_ITEMS + 1) })).toContain('more than 1000 items')
    expect(failure('json.exists(x, json.exists(y, x + y < 0))', { json: items(500) })).toContain(
      'more than 20000 steps',
    )
    expect(failure('json.map(x, json + json)', { json: items(500) })).toContain('more than 20000 steps')
    expect(failure('json.map(x, json == json)', { json: [...items(500), {}] })).toContain('more than 20000 steps')
    expect(failure(`json${' + json'.repeat(300)} == json`, { json: items(5000) })).toContain('more than 20000 steps')
    expect(failure('json.a == json.b', { json: { a: [items(15_000)], b: [items(15_000)] } })).toContain(
      'more than 20000 steps',
    )
  })

  it('is bounded for texts', () => {
    const text = 'x'.repeat(65_536)
    expect(read('json.contains("y")', { json: text })).toBe(false)
    expect(failure('json.l.map(x, json.t.split(""))', { json: { t: text, l: items(100) } })).toContain(
      'more than 20000 steps',
    )
  })

  it('counts where errors are dropped, too', () => {
    const source = 'json.exists(x, json.exists(y, x + y < 0)) || true'
    expect(failure(source, { json: items(500) })).toContain('more than 20000 steps')
    expect(read(source, { json: items(100) })).toBe(true)
  })

  it('starts again with each evaluation', () => {
    const expression = compileExpression('json.all(x, x >= 0)', 'boolean')
    for (let round = 0; round < 50; round++) expect(expression.evaluate(someVariables({ json: items(900) }))).toBe(true)
  })
})

it.each([
  'timestamp("9999-12-31T23:59:59Z") + duration("1s")',
  'timestamp("0001-01-01T00:00:00Z") - duration("1s")',
  'time + duration(json)',
  'duration("300000000000s") + duration("300000000000s")',
])('times and durations stay within 10000 years: %s', (source) => {
  expect(failure(source, { json: '999999999999h' })).toMatch(/^a (time is not within|duration exceeds)/)
})

describe('numbers', () => {
  it.each([
    '9223372036854775807 + 1',
    '-9223372036854775808 - 1',
    '-(-9223372036854775808)',
    '-9223372036854775808 / -1',
    'int(1e19)',
    'int(json.v * 1e19)',
  ])('stay within 64 bits: %s', (source) => {
    expect(failure(source, { json: { v: 1 } })).toMatch(/integer/)
  })

  it.each<[source: string, text: string]>([
    ['int(json)', ''],
    ['int(json)', '0x10'],
    ['int(json)', '1.5'],
    ['double(json)', ''],
    ['double(json)', 'abc'],
    ['double(json)', '0x10'],
    ['double(json)', ' 1'],
    ['timestamp(json)', '2026-02-30T00:00:00Z'],
    ['timestamp(json)', 'Sunday'],
    ['duration(json)', '5'],
  ])('are not read from other texts: %s of "%s"', (source, text) => {
    expect(failure(source, { json: text })).toMatch(/cannot read the text/)
  })

  it('are read from texts', () => {
    expect(read('[int("-42"), int(json)]', { json: '+7' })).toEqual([-42n, 7n])
    expect(read('[double("1.5e3"), double(json)]', { json: '-.5' })).toEqual([1500, -0.5])
  })
})

it('evaluates own fields of JSON only', () => {
  const json = JSON.parse('{"__proto__": {"a": 1}, "b": {"constructor": 1}}') as unknown
  expect(read('has(json.a)', { json })).toBe(false)
  expect(failure('json.toString == 1', { json })).toBe('no such key: toString')
  expect(failure('json[name]', { json, name: 'valueOf' })).toBe('no such key: valueOf')
  expect(typeof failure('json.b.c', { json })).toBe('string')
})
