import { expect, test } from 'vitest'
import { requireSchedule } from './schedule.ts'

test.each([
  ['61 * * * *', 'UTC', '/schedule'],
  ['nonsense', 'UTC', '/schedule'],
  ['', 'UTC', '/schedule'],
  ['0 0 31 2 *', 'UTC', '/schedule'],
  ['0 0 0 1 1 * 2030', 'UTC', '/schedule'],
  ['2030-01-01T00:00:00', 'UTC', '/schedule'],
  ['* * * * *', 'Mars/Olympus', '/timezone'],
])('the schedule "%s" in %s is refused with its field', (schedule, timezone, path) => {
  expect(() => requireSchedule(schedule, timezone)).toThrow(
    expect.objectContaining({
      kind: 'malformed',
      message: expect.stringMatching(new RegExp(`^${path.slice(1)} must `)) as string,
      details: [expect.objectContaining({ path })],
    }),
  )
})
