import { expect, test } from 'vitest'
import * as fc from 'fast-check'
import type { ResolvedRecord } from '../senml/index.ts'
import { BUCKET_SECONDS, chunksOf } from './record-chunks.ts'

function aRecord(timeSeconds: number): ResolvedRecord {
  const nothing = { stringValue: undefined, boolValue: undefined, dataValue: undefined, sum: undefined }
  return { name: 'n', unit: '', timeSeconds, value: 1, updateTimeSeconds: undefined, ...nothing }
}

test('the records of an ordinary message form one chunk, in the order in which they were sent', () => {
  const records = [3, 1, 2].map((second) => aRecord(1_700_000_100 + second))
  expect(chunksOf(records, [7, 8, 9])).toEqual([
    { records, seriesKeys: [7, 8, 9], minSeconds: 1_700_000_101, maxSeconds: 1_700_000_103 },
  ])
})

test('a time that is rounded into the next quarter of an hour belongs to that quarter', () => {
  expect(chunksOf([aRecord(899.999_999_9), aRecord(901)], [1, 2])).toHaveLength(1)
  expect(chunksOf([aRecord(899.999), aRecord(900)], [1, 2])).toHaveLength(2)
})

test('every record is in one chunk with its series, and no chunk crosses a quarter of an hour or holds more than 64 records', () => {
  const times = fc.array(fc.double({ min: -1e5, max: 1e5, noNaN: true }), { minLength: 1, maxLength: 300 })
  fc.assert(
    fc.property(times, (seconds) => {
      const records = seconds.map(aRecord)
      const keys = seconds.map((_, index) => index + 1)
      const chunks = chunksOf(records, keys)
      const pairs = chunks.flatMap((chunk) =>
        chunk.records.map((record, place) => [record, chunk.seriesKeys[place]] as const),
      )
      expect(pairs).toHaveLength(records.length)
      for (const [record, key] of pairs) expect(records[(key as number) - 1]).toBe(record)
      for (const chunk of chunks) {
        expect(chunk.records.length).toBeLessThanOrEqual(64)
        expect(chunk.maxSeconds - chunk.minSeconds).toBeLessThan(BUCKET_SECONDS + 1e-6)
        // In the order in which they were sent.
        expect([...chunk.seriesKeys].toSorted((left, right) => left - right)).toEqual(chunk.seriesKeys)
      }
    }),
  )
})
