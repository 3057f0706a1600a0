import { expect, test } from 'vitest'
import {
  REFUSED,
  givenUnder,
  namesOf,
  newerWord,
  newerWords,
  olderWord,
  withOlderNames,
  withoutEmpty,
} from './index.ts'

const CONNECTIONS = 'api/devices/connections/connection-request.ts'
const ACTIONS = 'api/identity/access/actions.ts'
const JOURNAL = 'api/identity/journal/schema.ts'

test('the newer name is preferred, then the older ones in the order of the table', () => {
  const names = namesOf(CONNECTIONS, 'client_ids')
  expect(names).toEqual(['client_ids', 'subjects', 'thing_id'])
  const body: { client_ids?: string; subjects?: string; thing_id?: string } = { thing_id: 'c', subjects: 'b' }
  expect(givenUnder(body, names)).toBe('b')
  expect(givenUnder({ ...body, client_ids: 'a' }, names)).toBe('a')
  expect(givenUnder({} as typeof body, names)).toBeUndefined()
})

test('a word that is in no row is unchanged', () => {
  expect(newerWord(ACTIONS, 'm_read')).toBe('subscribe')
  expect(newerWord(ACTIONS, 'read')).toBe('read')
  expect(newerWord(ACTIONS, 'constructor')).toBe('constructor')
  expect(olderWord(ACTIONS, 'publish')).toBe('m_write')
  expect(olderWord(ACTIONS, 'read')).toBe('read')
})

test('a word can stand for several', () => {
  expect(newerWords(JOURNAL, 'channel.change_status')).toEqual(['channel.enable', 'channel.disable'])
  expect(newerWords(JOURNAL, 'group.change_status')).toEqual(['group.enable', 'group.disable'])
  expect(newerWords(JOURNAL, 'task.create')).toEqual(['task.create'])
})

test('an answer has the older names beside the newer ones', () => {
  const answer = { client_id: 'id', client_secret: 'secret', channels: ['channel'] }
  expect(withOlderNames('api/provisioning/bootstrap/schema.ts', answer)).toEqual({
    ...answer,
    thing_id: 'id',
    thing_key: 'secret',
    mainflux_id: 'id',
    mainflux_key: 'secret',
    mainflux_channels: ['channel'],
  })
})

test('fields are refused that would have no effect', () => {
  expect(REFUSED.map(({ older }) => older)).toEqual(['encrypted', 'kbs_resource_path', 'kind', 'mode', 'latent'])
})

test('an empty text is no value for the fields of the table alone', () => {
  const place = 'api/devices/connectable/schema.ts'
  expect(withoutEmpty(place, { name: '', parent_group_id: '', route: '' })).toEqual({ name: '' })
  expect(withoutEmpty(place, { name: '', parent_group_id: 'id', route: null })).toEqual({
    name: '',
    parent_group_id: 'id',
    route: null,
  })
})
