import { expect, test } from 'vitest'
import { csvOfLines, filledSlots, linesOf, stepsText, valueAt } from './lines.ts'
import type { Reading } from './readings.ts'
import { seriesOf } from './series.ts'

const grid = { start: 600, step: 1, first: 600, count: 300 }
const reading = (name: string, every: number, valueOf: (slot: number) => number): Reading => {
  const column = Array.from({ length: grid.count }, (_none, slot) => (slot % every === 0 ? valueOf(slot) : null))
  const count = column.map((value) => (value === null ? null : 1))
  return {
    series: seriesOf({ name, unit: 'Cel', publisher: 'p' }),
    records: column.filter((value) => value !== null).length,
    slots: { mean: column, min: column, max: column, count },
  }
}
const lines = (...readings: Reading[]) => linesOf({ grid, total: readings.length, readings }, undefined, (id) => id)

test('values that are a minute apart are a line in a range of five minutes', () => {
  const [line] = lines(reading('t', 60, (slot) => slot))
  expect(line?.factor).toBe(60)
  expect(line?.mean.filter((value) => value !== null && value !== undefined)).toEqual([0, 60, 120, 180, 240])
  expect(line?.mean.slice(0, 241)).not.toContain(null)
  expect(line?.summary).toEqual({ last: 240, min: 0, mean: 120, max: 240 })
})

test('the step of a chart is that of its series, or from the shortest to the longest', () => {
  expect(stepsText(lines(reading('t', 60, () => 1)), grid)).toBe('1 min')
  expect(
    stepsText(
      lines(
        reading('t', 60, () => 1),
        reading('p', 1, () => 1),
      ),
      grid,
    ),
  ).toBe('1 s to 1 min')
  expect(stepsText([], grid)).toBe('1 s')
})

test('the value under the pointer is that of the step, also where the line passes over a gap', () => {
  const [line] = lines(reading('t', 60, (slot) => slot))
  if (line === undefined) throw new Error('no line')
  expect([0, 59, 60, 119, 299].map((slot) => valueAt(line, slot, grid))).toEqual([0, 0, 60, 60, 240])
})

test('readings of series that are not chosen are no lines', () => {
  const readings = [reading('t', 60, () => 1), reading('p', 60, () => 1)]
  const chosen = [seriesOf({ name: 'p', unit: 'Cel', publisher: 'p' })]
  expect(linesOf({ grid, total: 2, readings }, chosen, (id) => id).map(({ label }) => label)).toEqual(['p p'])
})

test('a chosen series without values is a line without points', () => {
  const chosen = [seriesOf({ name: 'gone', publisher: 'p' })]
  const [line] = linesOf({ grid, total: 0, readings: [] }, chosen, (id) => id)
  expect(line).toMatchObject({ label: 'p gone', records: 0, summary: undefined })
  expect(filledSlots(lines(), grid)).toEqual([])
})

test('CSV has a row for each step with a value, and runs nothing in a spreadsheet', () => {
  const csv = csvOfLines(
    lines(
      reading('=1+1', 150, (slot) => -slot),
      reading('a "b"', 300, () => 0.5),
    ),
    grid,
  )
  expect(csv.split('\r\n')).toEqual([
    `time,'=1+1 mean (Cel),'=1+1 minimum (Cel),'=1+1 maximum (Cel),"a ""b"" mean (Cel)","a ""b"" minimum (Cel)","a ""b"" maximum (Cel)"`,
    '1970-01-01T00:10:00.000Z,0,0,0,0.5,0.5,0.5',
    '1970-01-01T00:12:30.000Z,-150,-150,-150,,,',
    '',
  ])
})
