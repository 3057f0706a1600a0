import { expect, test } from 'vitest'
import {
  fillOf,
  formatBoard,
  goodnessOf,
  hasSeries,
  moved,
  newTile,
  parseBoard,
  withTile,
  withoutTile,
} from './content.ts'

const chart = newTile({
  kind: 'chart',
  channel: 'c',
  series: [{ publisher: 'p', subtopic: '', name: 't', unit: 'Cel' }],
})
const note = newTile({ kind: 'text', text: 'Hall 1' })
const alarms = newTile({ kind: 'alarms', text: 'boiler' })
const board = { range: '6h', tiles: [chart, note] }

test('a board is read as it was stored', () => {
  expect(parseBoard(JSON.parse(JSON.stringify(formatBoard(board))) as Record<string, unknown>)).toEqual(board)
  const withAlarms = { range: '6h', tiles: [chart, alarms, note] }
  expect(parseBoard(JSON.parse(JSON.stringify(formatBoard(withAlarms))) as Record<string, unknown>)).toEqual(withAlarms)
  expect(withAlarms.tiles.map(({ kind }) => hasSeries(kind))).toEqual([true, false, false])
})

test('content of other programs is no board, and breaks none', () => {
  expect(parseBoard({})).toEqual({ range: '1h', tiles: [] })
  expect(parseBoard({ range: 7, tiles: 'x' })).toEqual({ range: '1h', tiles: [] })
  const { tiles } = parseBoard({
    tiles: [null, 1, { kind: 'clock' }, { kind: 'value', width: 99, series: [null, { name: 1 }] }],
  })
  expect(tiles).toEqual([
    {
      ...newTile({ kind: 'value', id: 'tile-3', width: 4 }),
      series: [{ publisher: '', subtopic: '', name: '', unit: '' }],
    },
  ])
})

test('tiles are moved, replaced and removed', () => {
  const ids = (one: typeof board) => one.tiles.map(({ id }) => id)
  expect(ids(moved(board, note.id, -1) as typeof board)).toEqual([note.id, chart.id])
  expect(ids(moved(board, note.id, 5) as typeof board)).toEqual([chart.id, note.id])
  expect(moved(board, 'none', 1)).toEqual(board)
  expect(withTile(board, { ...note, text: 'Hall 2' }).tiles).toEqual([chart, { ...note, text: 'Hall 2' }])
  expect(withTile({ ...board, tiles: [chart] }, note).tiles).toEqual([chart, note])
  expect(withoutTile(board, chart.id).tiles).toEqual([note])
})

test('a state is good by its rule: numbers between two ends, a text, or true', () => {
  const state = newTile({ kind: 'state' })
  expect(goodnessOf({ ...state, min: 10, max: 20 }, { value: 20 })).toBe('good')
  expect(goodnessOf({ ...state, min: 10 }, { value: 9 })).toBe('bad')
  expect(goodnessOf({ ...state, text: 'on' }, { string_value: 'off' })).toBe('bad')
  expect(goodnessOf({ ...state, text: 'false' }, { bool_value: false })).toBe('good')
  expect(goodnessOf(state, { bool_value: false })).toBe('bad')
  expect(goodnessOf(state, { value: 3 })).toBe('neither')
})

test('a gauge is filled from its lower to its upper end', () => {
  const gauge = { ...newTile({ kind: 'gauge' }), min: 10, max: 20 }
  expect([5, 10, 15, 20, 25].map((value) => fillOf(gauge, value))).toEqual([0, 0, 0.5, 1, 1])
  expect(fillOf({ ...gauge, max: 10 }, 12)).toBe(0)
})
