/** The parser of plain packs compared with the general one: its results are the same. */
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { parseJson } from './json.ts'
import { resolvePack } from './pack.ts'
import { resolvePlainPack } from './plain-pack.ts'

const NOW = 1_700_000_000.5
const FIXTURES = join(import.meta.dirname, '../../../test/fixtures/senml')

/** The result of the general parser; undefined when it rejects the bytes. */
function judged(bytes: Buffer) {
  try {
    return resolvePack(parseJson(bytes), NOW)
  } catch {
    return undefined
  }
}

/** Whether the plain parser accepted the bytes. Results are compared exactly: toStrictEqual distinguishes 0 from -0. */
function expectAlike(text: string | Buffer): boolean {
  const bytes = Buffer.from(text)
  const plain = resolvePlainPack(bytes, NOW)
  if (plain !== undefined) expect(plain).toStrictEqual(judged(bytes))
  return plain !== undefined
}

describe('the fast path accepts the usual packs of devices', () => {
  test.each([
    ['one value', '[{"n":"t","v":21.5}]'],
    ['a base name with names', '[{"bn":"urn:dev:mac:1:","n":"t","u":"Cel","v":1},{"n":"h","u":"%RH","v":50.25}]'],
    ['a base name behind the name', '[{"n":"t","bn":"a:","v":1}]'],
    ['a base name alone', '[{"bn":"a","v":1},{"v":2}]'],
    ['all base fields', '[{"bn":"a","bt":1,"bu":"V","bv":1,"bs":2,"bver":5,"v":3}]'],
    ['a record of base fields alone', '[{"bn":"a:","bt":1276020076.001},{"n":"x","v":1}]'],
    ['every kind of value but data', '[{"n":"a","vs":"on #"},{"n":"b","vb":true}]'],
    ['booleans', '[{"n":"a","vb":true},{"n":"b","vb":false}]'],
    ['times', '[{"n":"a","v":1,"t":-5,"ut":10},{"n":"a","v":1,"t":1700000000.123456}]'],
    ['a sum alone', '[{"n":"a","s":12}]'],
    ['negative numbers', '[{"n":"a","v":-0},{"n":"a","v":-0.0},{"n":"a","v":-12.75}]'],
    ['the largest exact integer', '[{"n":"a","v":9007199254740991}]'],
    ['white space', ' [\n\t{ "n" : "a" ,\r\n "v" : 1 } , {"n":"b","v":2} ] \n'],
  ])('%s', (_name, text) => expect(expectAlike(text)).toBe(true))
})

describe('the fast path leaves all other packs to the full parser', () => {
  test.each([
    ['nothing', ''],
    ['no array', '{"n":"a","v":1}'],
    ['an empty array', '[]'],
    ['an empty record', '[{}]'],
    ['no value', '[{"n":"a"}]'],
    ['two values', '[{"n":"a","v":1,"vb":true}]'],
    ['an invalid name', '[{"n":"-a","v":1}]'],
    ['a base name that is too long and used by none', `[{"n":"a","v":1},{"bn":"${'b'.repeat(1025)}"}]`],
    ['a name that is too long', `[{"bn":"${'b'.repeat(1000)}","n":"${'a'.repeat(25)}","v":1}]`],
    ['a unit that is too long', `[{"n":"a","v":1,"u":"${'u'.repeat(257)}"}]`],
    ['a version that is too high', '[{"bver":11,"n":"a","v":1}]'],
    ['a version with a fraction', '[{"bver":5.5,"n":"a","v":1}]'],
    ['two versions', '[{"bver":5,"n":"a","v":1},{"bver":6,"n":"a","v":1}]'],
    ['a time beyond the years', '[{"n":"a","v":1,"t":253402300800}]'],
    ['an escape', '[{"n":"\\u0061","v":1}]'],
    ['characters beyond ASCII', '[{"n":"a","u":"°","v":1}]'],
    ['a control character', '[{"n":"a","vs":"\u0001"}]'],
    ['an exponent', '[{"n":"a","v":1e3}]'],
    ['an integer that is not exact', '[{"n":"a","v":9007199254740993}]'],
    ['many decimals', `[{"n":"a","v":0.${'0'.repeat(22)}1}]`],
    ['a number with a zero in front', '[{"n":"a","v":01}]'],
    ['a number with a plus', '[{"n":"a","v":+1}]'],
    ['a number without digits', '[{"n":"a","v":-}]'],
    ['a number that ends in a point', '[{"n":"a","v":1.}]'],
    ['a number that begins with a point', '[{"n":"a","v":.5}]'],
    ['a number in quotes', '[{"n":"a","v":"1"}]'],
    ['null', '[{"n":"a","v":null}]'],
    ['half a word', '[{"n":"a","vb":tru}]'],
    ['a label twice', '[{"n":"a","v":1,"v":2}]'],
    ['an unknown label', '[{"n":"a","v":1,"hint":1}]'],
    ['a label that must be understood', '[{"n":"a","v":1,"x_":1}]'],
    ['data', '[{"n":"a","vd":"aGk"}]'],
    ['a comma too many in a record', '[{"n":"a","v":1,}]'],
    ['a comma too many in the pack', '[{"n":"a","v":1},]'],
    ['no comma', '[{"n":"a""v":1}]'],
    ['no colon', '[{"n" "a","v":1}]'],
    ['bytes behind it', '[{"n":"a","v":1}]x'],
    ['half a pack', '[{"n":"a","v":1}'],
    ['half a text', '[{"n":"a'],
    ['a comment', '[{"n":"a",/**/"v":1}]'],
    ['another white space', '[{"n":"a",\u000b"v":1}]'],
    ['a mark in front', '\ufeff[{"n":"a","v":1}]'],
  ])('%s', (_name, text) => expect(expectAlike(text)).toBe(false))
})

test('both parsers agree on the packs of RFC 8428', () => {
  const files = readdirSync(FIXTURES).filter((file) => file.endsWith('.json'))
  expect(files.map((file) => expectAlike(readFileSync(join(FIXTURES, file)))).includes(true)).toBe(true)
})

const number = fc.oneof(
  fc.double({ noNaN: true, noDefaultInfinity: true }).map((value) => JSON.stringify(value)),
  fc.integer().map(String),
  // Decimal texts of every length: what is exact and what is nearly so.
  fc
    .tuple(
      fc.constantFrom('', '-'),
      fc.bigInt({ min: 0n, max: 10n ** 18n }),
      fc.option(fc.stringMatching(/^[0-9]{1,24}$/)),
    )
    .map(([sign, whole, decimals]) => `${sign}${whole}${decimals === null ? '' : `.${decimals}`}`),
)
const text = fc
  .oneof(fc.stringMatching(/^[A-Za-z0-9\-:./_]{0,12}$/), fc.string({ maxLength: 6 }))
  .map((value) => JSON.stringify(value))
const field = fc.oneof(
  { weight: 8, arbitrary: fc.tuple(fc.constantFrom('v', 't', 's', 'ut', 'bt', 'bv', 'bs'), number) },
  { weight: 8, arbitrary: fc.tuple(fc.constantFrom('n', 'u', 'vs', 'bn', 'bu'), text) },
  { weight: 1, arbitrary: fc.tuple(fc.constant('vb'), fc.constantFrom('true', 'false')) },
  { weight: 1, arbitrary: fc.tuple(fc.constant('bver'), fc.constantFrom('1', '5', '10', '11')) },
  { weight: 1, arbitrary: fc.tuple(fc.constantFrom('vd', 'l', 'x', '__proto__', 'n_'), text) },
)
const space = fc.constantFrom('', '', '', ' ', '\n', '\t \r')
const OF_VALUES = ['n', 'v', 'vs', 'vb', 'vd']
const anything = fc.uniqueArray(field, { maxLength: 5, selector: ([label]) => label })
const measurement = fc
  .tuple(
    fc.stringMatching(/^[A-Za-z0-9][A-Za-z0-9\-:./_]{0,12}$/),
    number,
    fc.uniqueArray(field, { maxLength: 2, selector: ([label]) => label }),
  )
  .map(([name, value, others]) => [
    ...others.slice(0, 1).filter(([label]) => !OF_VALUES.includes(label)),
    ['n', JSON.stringify(name)],
    ['v', value],
    ...others.slice(1).filter(([label]) => !OF_VALUES.includes(label)),
  ])
const record = fc
  .tuple(fc.oneof({ weight: 4, arbitrary: measurement }, { weight: 1, arbitrary: anything }), space)
  .map(([fields, gap]) => `{${fields.map(([label, value]) => `${gap}"${label}"${gap}:${gap}${value}`).join(',')}}`)
const pack = fc
  .tuple(fc.array(record, { minLength: 1, maxLength: 4 }), space)
  .map(([records, gap]) => `${gap}[${records.join(`${gap},`)}${gap}]`)

test('the full parser agrees on any pack that the fast path accepts', () => {
  let taken = 0
  fc.assert(
    fc.property(pack, (one) => {
      if (expectAlike(one)) taken++
    }),
    { numRuns: 10_000 },
  )
  expect(taken).toBeGreaterThan(200)
})

test('any number is read to the last bit, or left to the full parser', () => {
  let taken = 0
  fc.assert(
    fc.property(number, (one) => {
      if (expectAlike(`[{"n":"a","v":${one}}]`)) taken++
    }),
    { numRuns: 10_000 },
  )
  expect(taken).toBeGreaterThan(1000)
})

test('any mutation that the fast path accepts is valid, and the full parser agrees', () => {
  const mutation = fc.tuple(pack, fc.nat(), fc.nat(255), fc.constantFrom('set', 'insert', 'remove'))
  fc.assert(
    fc.property(mutation, ([one, place, byte, how]) => {
      const bytes = [...Buffer.from(one)]
      bytes.splice(place % bytes.length, how === 'insert' ? 0 : 1, ...(how === 'remove' ? [] : [byte]))
      expectAlike(Buffer.from(bytes))
    }),
    { numRuns: 10_000 },
  )
})
