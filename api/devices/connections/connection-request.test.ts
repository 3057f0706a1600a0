import { expect, it } from 'vitest'
import { newId } from '#core/ids.ts'
import { MAX_BULK_ITEMS } from '../connectable/bulk.ts'
import { parseConnectionPairs } from './connection-request.ts'

const id = newId()
const many = Array.from({ length: MAX_BULK_ITEMS + 1 }, () => id)

it.each([
  ['/client_ids', 'malformed', { channel_ids: [id] }],
  ['/channel_ids', 'malformed', { subjects: [id] }],
  ['/subjects', 'malformed', { subjects: ['no id'], objects: [id] }],
  ['/objects', 'malformed', { subjects: [id], objects: ['no id'] }],
  ['/thing_id', 'malformed', { thing_id: 'no id', channel_id: id }],
  ['/channel_id', 'malformed', { thing_id: id, channel_id: 'no id' }],
  ['/types', 'malformed', { client_ids: [id], channel_ids: [id], types: ['none'] }],
  ['/actions', 'malformed', { client_ids: [id], channel_ids: [id], actions: ['none'] }],
])('names the field that was sent: %s', (path, kind, connection) => {
  const refused = expect.objectContaining({ kind, details: [expect.objectContaining({ path })] }) as Error
  expect(() => parseConnectionPairs([connection])).toThrow(refused)
})

it('names the item of a list', () => {
  const refused = expect.objectContaining({ message: '1.subjects must contain only UUIDs in lower case' }) as Error
  const pair = { client_ids: [id], channel_ids: [id] }
  expect(() => parseConnectionPairs([pair, { subjects: ['no id'], channel_ids: [id] }])).toThrow(refused)
})

it('names the field with too many ids', () => {
  const message = `a request is limited to ${MAX_BULK_ITEMS} subjects: got ${MAX_BULK_ITEMS + 1}`
  const refused = expect.objectContaining({ kind: 'too_large', message }) as Error
  expect(() => parseConnectionPairs([{ subjects: many, objects: [id] }])).toThrow(refused)
})
