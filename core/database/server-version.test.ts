import { expect, test } from 'vitest'
import { checkVersionNumber } from './server-version.ts'

test('an older server is rejected with the required version', () => {
  expect(() => checkVersionNumber(140_019)).toThrow(
    'the database server is PostgreSQL 14, which is too old; Skein requires PostgreSQL 15 or newer',
  )
})

test('every tested version is accepted without a message', () => {
  for (const number of [150_000, 150_018, 160_004, 170_006, 180_000, 180_099])
    expect(checkVersionNumber(number)).toBeUndefined()
})

test('a newer server is accepted with a warning that it was not tested', () => {
  expect(checkVersionNumber(190_001)).toBe(
    'the database server is PostgreSQL 19, which was not tested with Skein; tested versions are 15 to 18',
  )
})
