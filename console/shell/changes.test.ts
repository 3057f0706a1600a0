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
  [{ operation: 'domain.role.remove_members', attributes: { members: ['a'] } }, 'Domain role members removed'],
  [{ operation: 'client.update_tags', attributes: { name: 'pump' } }, 'Client pump tags changed'],
  [{ operation: 'client_state.update', attributes: { ids: ['a', 'b'] } }, 'State of 2 clients changed'],
  [{ operation: 'client_state.update', attributes: { id: 'a', state: 'main' } }, 'State of client changed'],
  [
    { operation: 'alarm.acknowledge', attributes: { name: 'temperature', rule_name: 'Boiler too hot' } },
    'Alarm Boiler too hot acknowledged',
  ],
  [{ operation: 'command.late', attributes: { name: 'reboot' } }, 'Command reboot answered too late'],
  [{ operation: 'invitation.send', attributes: { role_name: 'operator' } }, 'Invitation as operator sent'],
  [{ operation: 'invitation.delete', attributes: {} }, 'Invitation deleted'],
  [{ operation: 'something.quite_new', attributes: {} }, 'Something quite new'],
])('%o in words', (record, words) => {
  expect(describeChange(record)).toBe(words)
})

test('a record without a name is shown with the one that its subject has today', () => {
  const record = { operation: 'client.disable', attributes: { id: 'a', before: { status: 'enabled' } } }
  expect(describeChange(record)).toBe('Client disabled')
  expect(describeChange(record, 'pump')).toBe('Client pump disabled')
})
