// docs/guides/device-state.md: a flat difference as SenML (RFC 8428)
import { expect, test } from 'vitest'
import { parseWithExactIntegers } from '#core/exact-integers.ts'
import { parseCborPack } from './cbor-pack.ts'
import { packOfFields } from './fields-pack.ts'
import { packToCbor } from './notation.ts'

test('each field is a record with its type', () => {
  const pack = packOfFields({ firmware: '1.4', level: 3, 'led.on': false })
  expect(JSON.parse(String(pack))).toEqual([
    { n: 'firmware', vs: '1.4' },
    { n: 'level', v: 3 },
    { n: 'led.on', vb: false },
  ])
  expect(parseCborPack(packToCbor(pack as Buffer))).toEqual([
    { n: 'firmware', vs: '1.4' },
    { n: 'level', v: 3 },
    { n: 'led.on', vb: false },
  ])
  expect(String(packOfFields({}))).toBe('[]')
})

test.each([
  '{"led":{"on":true}}',
  '{"list":[1]}',
  '{"none":null}',
  '{"big":9007199254740993}',
  '{"two words":1}',
  '{"":1}',
  '{"level":1,"$x":2}',
])('%s is no pack', (text) => {
  expect(packOfFields(parseWithExactIntegers(text) as { [name: string]: unknown })).toBeUndefined()
})
