/** The examples of RFC 8428 with their official resolution (test/fixtures/senml). */
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { parseCborPack, parseJson, resolvePack } from './index.ts'

const FOLDER = join(import.meta.dirname, '../../../test/fixtures/senml')
/** The moments of reception that the official resolutions assume. */
const RECEIVED_AT = 1_498_780_179
const RECEIVED_AT_EX7 = 1_499_109_309

type Resolved = { n: string; u?: string; t: number; v?: number; vs?: string; vb?: boolean }

function read(file: string): unknown {
  return parseJson(readFileSync(join(FOLDER, file)))
}

/** To microseconds, which is what is stored: base time + time is a sum of doubles. */
function micros(seconds: number): number {
  return Math.round(seconds * 1e6)
}

function resolveFile(file: string, receivedAt = RECEIVED_AT) {
  return resolvePack(read(file), receivedAt).map((record) => ({
    name: record.name,
    unit: record.unit,
    time: micros(record.timeSeconds),
    value: record.value ?? record.stringValue ?? record.boolValue ?? record.dataValue,
  }))
}

const resolved = readdirSync(FOLDER).filter((file) => file.endsWith('.resolved.json'))

describe('RFC 8428 examples', () => {
  test('all twelve resolutions exist', () => expect(resolved).toHaveLength(12))

  test.each(resolved.filter((file) => !file.startsWith('ex7.')))('%s is the resolution of its pack', (file) => {
    const expected = (read(file) as Resolved[]).map((record) => ({
      name: record.n,
      unit: record.u ?? '',
      time: micros(record.t),
      value: record.v ?? record.vs ?? record.vb,
    }))
    expect(resolveFile(file.replace('.resolved', ''))).toEqual(expected)
  })

  test('ex7 keeps all four kinds of value', () => {
    expect(resolveFile('ex7.json', RECEIVED_AT_EX7).map((record) => record.value)).toEqual([
      23.1,
      'Machine Room',
      false,
      Buffer.from('hi \n'),
    ])
  })

  test('ex13 is resolved although it has no official resolution', () => {
    expect(resolveFile('ex13.json').map(({ time, value }) => [time, value])).toEqual([
      [1_320_078_429_000_000, 0.5],
      [1_320_078_429_000_000, 0.5],
      [1_320_078_429_100_000, 0],
      [1_320_078_429_100_000, 0],
    ])
  })

  test.each(['ex3', 'ex5'])('the CBOR form of %s resolves to the same records', (name) => {
    const bytes = Buffer.from(readFileSync(join(FOLDER, `${name}.cbor.hex`), 'utf8').trim(), 'hex')
    const fromJson = resolvePack(read(`${name}.json`), RECEIVED_AT)
    expect(resolvePack(parseCborPack(bytes), RECEIVED_AT)).toEqual(fromJson)
  })
})
