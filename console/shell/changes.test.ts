import { expect, test } from 'vitest'
import { describeChange, differenceOf } from './changes.ts'

test('a difference has the fields that changed, those of objects one by one', () => {
  expect(
    differenceOf({
      before: { name: 'pump', tags: ['a'], metadata: { floor: 1, hall: 'x' }, status: 'enabled' },
      after: { name: 'north pump', tags: ['a', 'b'], metadata: { floor: 2, hall: 'x', row: true }, status: 'enabled' },
    }),
  ).toEqual([
    { field: 'name', before: 'pump', after: 'north pump' },
    { field: 'tags', before: '["a"]', after: '["a","b"]' },
    { field: 'metadata.floor', before: '1', after: '2' },
    { field: 'metadata.row', after: 'true' },
  ])
})

test('what was made or is gone has one side', () => {
  expect(differenceOf({ after: { name: 'pump' } })).toEqual([{ field: 'name', after: 'pump' }])
  expect(differenceOf({ before: { description: 'old' }, after: { description: '' } })).toEqual([
    { field: 'description', before: 'old' },
  ])
  expect(differenceOf({})).toEqual([])
})

test.each([
  [{ operation: 'client.create', attributes: { ids: ['a', 'b'] } }, '2 clients created'],
  [
    { operation: 'channel.connect', attributes: { client_ids: ['a', 'b'], channel_ids: ['c'] } },
    '2 clients connected to 1 channel',
  ],
  [
    { operation: 'channel.disconnect', attributes: { client_ids: ['a'], channel_ids: ['c', 'd'] } },
    '1 client disconnected from 2 channels',
  ],
  [{ operation: 'client.create', attributes: { id: 'a', name: 'pump' } }, 'Client pump created'],
  [{ operation: 'domain.role.create', attributes: { role_name: 'viewer' } }, 'Domain role viewer created'],
])('%o in words', (record, words) => {
  expect(describeChange(record)).toBe(words)
})
