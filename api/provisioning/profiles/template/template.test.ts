/** The template language of profiles: the supported subset of Go's text/template, its errors and its limits. */
import fc from 'fast-check'
import { describe, expect, it, test } from 'vitest'
import { TemplateFault, evaluate, parseTemplate } from './index.ts'
import type { Value } from './index.ts'

const DATA: Value = {
  Device: { ID: 'd-1', ExternalID: 'gw-1' },
  Vars: {
    port: 1883,
    rate: 0.5,
    big: 1_000_000,
    on: true,
    off: false,
    empty: '',
    none: null,
    list: [3, 1],
    name: 'a"b',
  },
  Bindings: { mqtt: { ID: 'c-1', Snapshot: { id: 'c-1', name: 'pump' }, Secret: { secret: 's3' } } },
}
const fill = (template: string, isJson = false, data: Value = DATA) =>
  evaluate(parseTemplate(template), data, { isJson })

test.each([
  ['plain text', 'plain text'],
  ['{{.Device.ID}}/{{ .Device.ExternalID }}', 'd-1/gw-1'],
  ['{{.Bindings.mqtt.Snapshot.id}}:{{$.Bindings.mqtt.Secret.secret}}', 'c-1:s3'],
  ['{{.Vars.port}} {{.Vars.rate}} {{.Vars.big}} {{.Vars.on}}', '1883 0.5 1000000 true'],
  ['a  {{- " b " -}}  c', 'a b c'],
  ['a{{/* a comment with }} in it */}}b{{- /* and one that trims */ -}} c', 'abc'],
  ['{{if .Vars.on}}yes{{else}}no{{end}} {{if .Vars.empty}}yes{{else}}no{{end}}', 'yes no'],
  ['{{if .Vars.off}}1{{else if .Vars.empty}}2{{else if eq .Vars.port 1883}}3{{else}}4{{end}}!', '3!'],
  ['{{range .Vars.list}}<{{.}}>{{end}}{{range $i, $v := .Vars.list}}{{$i}}={{$v}};{{end}}', '<3><1>0=3;1=1;'],
  ['{{range $k, $v := .Device}}{{$k}}={{$v}} {{end}}', 'ExternalID=gw-1 ID=d-1 '],
  ['{{range .Vars.nothing}}x{{else}}none{{end}}', 'none'],
  [
    '{{with .Bindings.mqtt}}{{.Snapshot.name}}{{end}}{{with .Bindings.backup}}never{{else}}no backup{{end}}',
    'pumpno backup',
  ],
  ['{{$x := .Vars.port}}{{if true}}{{$x = 7}}{{end}}{{$x}}', '7'],
  ['{{with $m := .Bindings.mqtt}}{{$m.ID}}{{end}}', 'c-1'],
  [
    '{{.Vars.missing | default "d"}} {{default "d" .Vars.empty}} {{default 1 .Vars.off}} {{default "d" .Vars.none}}',
    'd d false d',
  ],
  ['{{required "port" .Vars.port}} {{.Vars.port | required "port"}}', '1883 1883'],
  ['{{toJSON .Vars.name}} {{toJSON .Vars.list}} {{.Vars.none | toJSON}}', '"a\\"b" [3,1] null'],
  ['{{and 1 0 2}} {{or 0 "x"}} {{not .Vars.on}} {{and .Vars.on (ne .Vars.port 8883)}}', '0 x false true'],
  [
    '{{eq .Vars.port 1 1883}} {{lt 1 2}} {{ge "b" "a"}} {{le 2 1}} {{gt 2 1}} {{eq .Vars.missing nil}}',
    'true true true false true true',
  ],
  ['{{len .Vars.list}} {{len "ö"}} {{len .Device}} {{index .Vars.list 1}} {{index .Vars "port"}}', '2 2 2 1 1883'],
  [
    '{{printf "%s:%d %05.1f %q %x%%" "h" 80 1.25 "q" 255}} {{print 1 2 "a" 3}} {{urlquery "a b&c"}}',
    'h:80 001.3 "q" ff% 1 2a3 a+b%26c',
  ],
  ['{{(index .Bindings "mqtt").Snapshot.name}} {{`raw \\n`}} {{"tab\\tend"}}', 'pump raw \\n tab\tend'],
])('%s', (template, expected) => {
  expect(fill(template)).toBe(expected)
})

describe('between quotation marks of JSON', () => {
  it('values are escaped, elsewhere not', () => {
    const name = 'x","admin":true,"y":"\\ \n'
    const filled = fill('{"name":"{{.name}}","list":{{toJSON .list}},"port":{{.port}},"q":"\\"{{.name}}"}', true, {
      name,
      list: ['"'],
      port: 80,
    })
    expect(JSON.parse(filled)).toEqual({ name, list: ['"'], port: 80, q: `"${name}` })
  })

  it('every text is preserved', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 50 }), (text) => {
        expect(JSON.parse(fill('{"a":"{{.a}}","b":{{toJSON .a}}}', true, { a: text }))).toEqual({ a: text, b: text })
      }),
    )
  })
})

test.each([
  ['{{.Vars.missing}}', '.Vars.missing has no value (line 1'],
  ['\n\n{{.Bindings.backup.Secret.secret}}', '.Bindings.backup.Secret.secret has no value (line 3'],
  ['{{.Vars.list}}', 'cannot print a list'],
  ['{{.Vars}}', 'cannot print an object'],
  ['{{.Vars.none}}', 'a value is null'],
  ['{{.Vars.port.x}}', 'has no fields'],
  ['{{.Vars.__proto__}}', '.Vars.__proto__ has no value'],
  ['{{.Vars.constructor}}', '.Vars.constructor has no value'],
  ['{{required "the port" .Vars.missing}}', 'the port is required'],
  ['{{toJSON .Vars.missing}}', '.Vars.missing has no value'],
  ['{{index .Vars.list 7}}', 'has no value'],
  ['{{lt 1 "a"}}', 'only two numbers'],
  ['{{eq .Vars.list .Vars.list}}', 'only texts, numbers and booleans'],
  ['{{range .Vars.port}}{{end}}', 'range requires a list or an object'],
  ['{{printf "%d" "a"}}', 'requires a number'],
  ['{{printf "%s"}}', 'fewer values'],
  ['{{printf "%99999d" 1}}', 'too large'],
  ['{{if true}}{{$x := 1}}{{end}}{{$x}}', 'undefined variable $x'],
])('%s fails: %s', (template, message) => {
  expect(() => fill(template)).toThrow(message)
})

test.each([
  ['{{', 'not closed by }}'],
  ['{{"a}}', 'unexpected character'],
  ['{{/* a', 'unclosed comment'],
  ['{{}}', 'an action is empty'],
  ['\n{{if .A}}', '{{if}} has no {{end}} (line 2'],
  ['{{end}}', '{{end}} without a block'],
  ['{{else}}', '{{else}} without {{if}}'],
  ['{{if 1}}{{else}}{{else}}{{end}}', '{{else}} without {{if}}'],
  ['{{if 1}}{{else range .A}}{{end}}', '{{else}} may only be followed by'],
  ['{{define "x"}}{{end}}', '{{define}} is not supported'],
  ['{{template "x"}}', '{{template}} is not supported'],
  ['{{env "PATH"}}', 'unknown function env'],
  ['{{constructor}}', 'unknown function constructor'],
  ['{{.A | .B}}', '| must be followed by a function'],
  ['{{.A .B}}', 'only a function takes arguments'],
  ['{{not}}', 'not does not accept 0 arguments'],
  ['{{(.A}}', 'unclosed parenthesis'],
  ['{{.A)}}', 'unexpected ")"'],
  ['{{"\\x41"}}', 'an invalid escape'],
  ['{{required .A .B}}', 'must be a text in quotes'],
  ['{{$ := 1}}', 'cannot be assigned here'],
  ['{{$a, $b := .A}}', 'cannot be assigned here'],
  ['{{if 1}}'.repeat(33), 'more than 32 nested blocks'],
  [`{{if 0}}${'{{else if 0}}'.repeat(33)}{{end}}`, 'more than 32 chained conditions'],
  [`{{${'('.repeat(33)}1${')'.repeat(33)}}}`, 'too many nested parentheses'],
])('%s is not valid: %s', (template, message) => {
  expect(() => parseTemplate(template)).toThrow(message)
})

describe('limits of a template', () => {
  const many = { list: Array.from({ length: 2000 }, (_, place) => place), text: 'x'.repeat(60_000) }

  test.each([
    ['loops in loops', '{{range .list}}{{range $.list}}{{end}}{{end}}', 'exceeds the limit of steps'],
    ['a long result', '{{range .list}}{{$.text}}{{end}}', 'the result is longer than'],
    ['long texts that are thrown away', '{{range .list}}{{$x := toJSON $.text}}{{end}}', 'exceeds the limit of steps'],
    ['long comparisons', '{{range .list}}{{if eq $.text $.text}}{{end}}{{end}}', 'exceeds the limit of steps'],
  ])('ends: %s', (_what, template, message) => {
    expect(() => fill(template, false, many)).toThrow(message)
  })

  it('any text is parsed or rejected, and evaluated or fails with a TemplateFault', () => {
    const words = [
      '{{',
      '}}',
      '{{- ',
      ' -}}',
      'if ',
      'range ',
      'with ',
      'else',
      'end',
      '.a',
      '$',
      '$x',
      ':=',
      '|',
      '(',
      ')',
      '"',
      '`',
      ' ',
      '\n',
      'eq ',
      '1',
      '/*',
      '*/',
      '"t"',
      'toJSON ',
      'index ',
    ]
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...words), { maxLength: 30 }), (parts) => {
        try {
          fill(parts.join(''), true, { a: { a: [1, 'two'] } })
        } catch (error) {
          expect(error).toBeInstanceOf(TemplateFault)
        }
      }),
      { numRuns: 2000 },
    )
  })
})
