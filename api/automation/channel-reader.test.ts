import { expect, test } from 'vitest'
import { toRecord } from './channel-reader.ts'

test('presents stored records to guests with SenML field names, channel, subtopic and publisher', () => {
  const where = { channel: 'c', subtopic: 'pump', publisher: 'p', protocol: 'http' }
  const record = { name: 'temp', unit: 'Cel', time: 10, value: 20.5 }
  expect(toRecord({ ...where, ...record })).toEqual({ ...where, n: 'temp', u: 'Cel', t: 10, v: 20.5 })
  const switched = { name: 'door', time: 11, bool_value: false }
  const { subtopic: _, ...place } = where
  expect(toRecord({ ...place, ...switched })).toEqual({ ...place, n: 'door', t: 11, vb: false })
})
