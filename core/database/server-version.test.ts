import { expect, test } from 'vitest'
import { judgeServerVersion } from './server-version.ts'

test('an older server is refused in one line that says what is needed', () => {
  expect(() => judgeServerVersion(140_019)).toThrow(
    'the database server is PostgreSQL 14, which is too old: Skein needs PostgreSQL 15 or newer',
  )
})

test('every version that the tests run on is taken without a word', () => {
  for (const number of [150_000, 150_018, 160_004, 170_006, 180_000, 180_099])
    expect(judgeServerVersion(number)).toBeUndefined()
})

test('a newer server is used, and the start says that it was not tested', () => {
  expect(judgeServerVersion(190_001)).toBe(
    'the database server is PostgreSQL 19, which Skein was not tested on: it was with 15 to 18',
  )
})
