import { expect, test } from 'vitest'
import { causeFilters, seriesText, valueOf } from './words.ts'

test.each([
  [31.25, 'Cel', '31.25 Cel'],
  ['open', '', 'open'],
  [true, '', 'true'],
  [{ level: 4 }, '', '{"level":4}'],
  [null, 'Cel', ''],
])('the value %j is shown with its unit', (value, unit, text) => {
  expect(valueOf({ value, unit })).toBe(text)
})

test('the message that raised it is found by its id, also where it has no records', () => {
  const cause = '770-4711-3'
  expect(causeFilters({ cause, name: 'temperature', subtopic: 'hall.1' })).toEqual({ message: '4711/3' })
  expect(causeFilters({ cause, name: '', subtopic: '' })).toEqual({ message: '4711/3', format: 'json' })
  expect(causeFilters({ cause, name: '', subtopic: 'hall.state' })).toEqual({ message: '4711/3', format: 'state' })
  expect(causeFilters({ cause, name: '', subtopic: 'hall/state' })).toEqual({ message: '4711/3', format: 'state' })
})

test('a series is named by its subtopic and its name', () => {
  expect(seriesText({ subtopic: 'hall.1', name: 'temperature' })).toBe('hall.1 temperature')
  expect(seriesText({ subtopic: '', name: '' })).toBe('')
})
