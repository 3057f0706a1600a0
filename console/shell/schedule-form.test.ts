import { expect, test } from 'vitest'
import { cronOf, formOf } from './schedule-form.ts'

test.each([
  ['', 'none'],
  ['* * * * *', 'minutes'],
  ['*/15 * * * *', 'minutes'],
  ['30 * * * *', 'hourly'],
  ['5 9 * * *', 'daily'],
  ['0 17 * * 1-5', 'weekdays'],
  ['0 0 * * 0', 'weekly'],
  ['45 23 31 * *', 'monthly'],
])('%s is shown as %s, and stays the same expression', (cron, rhythm) => {
  expect(formOf(cron).rhythm).toBe(rhythm)
  expect(cronOf(formOf(cron))).toBe(cron)
})

test.each([
  '*/7 * * * *',
  '0 9 * * 1,3',
  '0 0 9 * * *',
  '0 9 1 1 *',
  '0 9 1 * 1',
  '61 * * * *',
  '0 24 * * *',
  'nonsense',
])('%s stays a cron expression', (cron) => {
  expect(formOf(cron)).toMatchObject({ rhythm: 'cron', cron })
  expect(cronOf(formOf(cron))).toBe(cron)
})

test('another rhythm keeps the time that was chosen', () => {
  expect(cronOf({ ...formOf('5 9 * * *'), rhythm: 'weekly', weekday: '3' })).toBe('5 9 * * 3')
})
