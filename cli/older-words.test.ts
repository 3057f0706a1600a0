import { expect, test } from 'vitest'
import { findGroup } from './groups.ts'
import { OLDER_WORDS, newerWords } from './older-words.ts'

const CLIENT = '5384fb1c-d0ae-4cbe-be52-c54223150fe0'

test.each([
  ['messages send plant c1.floor [] secret', 'messages send c1.floor [] plant secret'],
  ['messages send c1 [] plant secret', 'messages send c1 [] plant secret'],
  ['messages send c1 text plant secret', 'messages send c1 text plant secret'],
  [`certs get ${CLIENT} plant token`, `certs get entity ${CLIENT} plant token`],
  ['certs get 00ff plant token', 'certs get 00ff plant token'],
  [`certs revoke-all ${CLIENT} plant token`, `certs revoke ${CLIENT} plant token`],
  [`certs issue ${CLIENT} pump [] plant token`, `certs issue named ${CLIENT} pump [] plant token`],
  [`certs issue ${CLIENT} plant token`, `certs issue ${CLIENT} plant token`],
  ['bootstrap profiles get all plant token', 'profiles get all plant token'],
  ['bootstrap enrollments assign-profile c1 p1 plant token', 'profiles assign p1 c1 plant token'],
  ['clients get all', 'clients get all'],
])('%s means %s', (older, newer) => {
  expect(newerWords(older.split(' ')).join(' ')).toBe(newer)
})

test('a group with older words says so in its help', () => {
  expect(OLDER_WORDS.filter(({ from }) => findGroup(from.split(' ')[0] ?? '')?.hasOlderWords !== true)).toEqual([])
})
