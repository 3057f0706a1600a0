import { describe, expect, it } from 'vitest'
import { ExpressionError } from './expression-error.ts'
import {
  MAX_INSERTED_CHARS,
  MAX_INSERTIONS,
  MAX_TEMPLATE_BYTES,
  compileJsonTemplate,
  compileTextTemplate,
} from './template.ts'
import { RuleClient } from './variables.ts'
import type { RuleVariables } from './variables.ts'

const VARIABLES: RuleVariables = {
  value: 30.5,
  name: 'temperature',
  unit: 'Cel',
  time: new Date('2026-11-29T22:30:00.125Z'),
  channel: 'a-channel',
  subtopic: '',
  protocol: 'mqtt',
  client: new RuleClient('a-client', 'boiler "1"\n', ['cold'], { floor: 2 }),
}

const text = (source: string, variables: Partial<RuleVariables> = {}) =>
  compileTextTemplate(source).render({ ...VARIABLES, ...variables }, { read: () => 12.25 })
const json = (source: string, variables: Partial<RuleVariables> = {}) =>
  JSON.parse(compileJsonTemplate(source).render({ ...VARIABLES, ...variables }, { read: () => 12.25 })) as unknown

function refusal(compile: () => unknown): ExpressionError {
  try {
    compile()
  } catch (error) {
    if (error instanceof ExpressionError) return error
    throw error
  }
  throw new Error('the template was accepted')
}

describe('a text', () => {
  it.each<[source: string, result: string]>([
    ['', ''],
    ['no expression, { } and }}', 'no expression, { } and }}'],
    ['{{ name }} is {{value}} {{ unit }}', 'temperature is 30.5 Cel'],
    ['{{ value > 30.0 ? "hot" : "cold" }}', 'hot'],
    ['{{ "}}" + "{{" }}{{ \'"}}\\\'\' }}', '}}{{"}}\''],
    ['{{ {"a": {"b": 1}}.a.b }}', '1'],
    [
      '{{ time }} {{ duration("90s") }} {{ 9223372036854775807 }}',
      '2026-11-29T22:30:00.125000Z 90s 9223372036854775807',
    ],
    [
      '{{ client.tags }} {{ client.metadata }} {{ [1, 2.5] }} {{ true }} {{ null }}',
      '["cold"] {"floor":2} [1,2.5] true ',
    ],
    ['{{ round(mean("5m"), 1) }}', '12.3'],
  ])('%j', (source, result) => {
    expect(text(source)).toBe(result)
  })

  it('has durations in seconds', () => {
    expect(text('{{ duration("1h30m") }} {{ duration("-1.5s") }} {{ time - time }}')).toBe('5400s -1.5s 0s')
  })

  it('has a gap where a record has no value', () => {
    expect(text('[{{ string_value }}] [{{ json.a }}] [{{ 1 / 0 }}]')).toBe('[] [] []')
  })

  it('is bounded', () => {
    const long = 'x'.repeat(10_000)
    expect(text('{{ name }}', { name: long })).toBe(`${'x'.repeat(MAX_INSERTED_CHARS - 1)}…`)
    expect(text('{{ name }}', { name: `${'x'.repeat(MAX_INSERTED_CHARS - 2)}😀😀` }).isWellFormed()).toBe(true)
    expect(text('{{ name }}'.repeat(MAX_INSERTIONS))).toHaveLength(11 * MAX_INSERTIONS)
    expect(refusal(() => compileTextTemplate('{{ name }}'.repeat(MAX_INSERTIONS + 1))).sentence).toContain(
      'at most 64 expressions',
    )
    expect(refusal(() => compileTextTemplate('x'.repeat(MAX_TEMPLATE_BYTES + 1))).sentence).toContain(
      'at most 16384 bytes',
    )
  })

  it('asks for the windows of its expressions', () => {
    expect(compileTextTemplate('{{ mean("5m") }} {{ last("fan") }}').windows).toEqual([
      { function: 'mean', series: undefined, durationMs: 300_000 },
      { function: 'last', series: 'fan', durationMs: undefined },
    ])
  })

  it.each<[source: string, line: number, column: number, sentence: string]>([
    ['a\n {{ nmae }}', 2, 5, 'did you mean name?'],
    ['{{ value +\n  }}', 2, 3, 'unexpected token: the end'],
    ['{{ value }', 1, 1, '}} must follow'],
    ['a {{ "b }}', 1, 3, '}} must follow'],
    ['{{}}', 1, 3, 'unexpected token: the end'],
  ])('%j is refused', (source, line, column, sentence) => {
    const error = refusal(() => compileTextTemplate(source, '/body'))
    expect(error).toMatchObject({ line, column })
    expect(error.message).toContain(sentence)
  })
})

describe('a JSON document', () => {
  it('keeps the types of values, and texts with more than an expression', () => {
    const source =
      '{"v": "{{ value }}", "text": "{{ name }}: {{ value }}", "n": 1, "list": ["{{ client.tags }}", true, null], "big": "{{ 9223372036854775807 }}", "i": "{{ 2 }}", "ok": "{{ value > 3.0 }}"}'
    expect(json(source)).toEqual({
      v: 30.5,
      text: 'temperature: 30.5',
      n: 1,
      list: [['cold'], true, null],
      big: '9223372036854775807',
      i: 2,
      ok: true,
    })
  })

  it('is not changed by what is inserted', () => {
    expect(
      json('{"a": "{{ client.name }}", "b": "by {{ client.name }}", "__proto__": "{{ name }}"}', { name: '", "c": "' }),
    ).toEqual(
      JSON.parse(
        JSON.stringify({ a: 'boiler "1"\n', b: 'by boiler "1"\n' }).replace('}', ', "__proto__": "\\", \\"c\\": \\""}'),
      ),
    )
  })

  it('has null where a record has no value, and texts for long lists', () => {
    expect(json('["{{ string_value }}", "{{ 1.0 / 0 }}", "a {{ string_value }}"]')).toEqual([null, null, 'a '])
    expect(json('["{{ json }}"]', { json: Array(1000).fill(1) })).toEqual([
      `${`[${'1,'.repeat(600)}`.slice(0, MAX_INSERTED_CHARS - 1)}…`,
    ])
    expect(json('["{{ time }}", "{{ json }}"]', { json: '{"a":1}' })).toEqual([
      '2026-11-29T22:30:00.125000Z',
      '{"a":1}',
    ])
  })

  it('names the place in the document', () => {
    const error = refusal(() => compileJsonTemplate('{"blocks": [{"text": "{{ nmae }}"}]}', '/body'))
    expect(error.details?.[0]?.path).toBe('/body/blocks/0/text')
    expect(refusal(() => compileJsonTemplate('{"a": {{ value }}}')).sentence).toContain('a JSON document is accepted')
  })
})
