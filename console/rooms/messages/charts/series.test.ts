import { expect, test } from 'vitest'
import { formatChoice } from '../../../shell/chosen-series.ts'
import { filterOf, namedSeries, parseChoice, seriesOf } from './series.ts'

test('a series without a publisher or a subtopic asks for such messages alone', () => {
  const filterOfOne = (fields: Parameters<typeof seriesOf>[0]) => filterOf([seriesOf(fields)])
  expect(filterOfOne({ name: 'temperature', unit: 'Cel', publisher: 'pump', subtopic: 'hall' })).toEqual({
    name: 'temperature',
    publisher: 'pump',
    subtopic: 'hall',
  })
  expect(filterOfOne({ name: 't', publisher: 'pump' })).toEqual({ name: 't', publisher: 'pump', without: 'subtopic' })
  expect(filterOfOne({ name: 't', publisher: '', subtopic: 'hall' })).toEqual({
    name: 't',
    subtopic: 'hall',
    without: 'publisher',
  })
  expect(filterOfOne({ name: 't', publisher: '' })).toEqual({ name: 't', without: 'publisher,subtopic' })
})

test('a query for several series selects what all of them have in common', () => {
  const one = seriesOf({ name: 't', publisher: 'a' })
  const other = seriesOf({ name: 'p', publisher: 'b' })
  const ofHall = seriesOf({ name: 't', publisher: 'a', subtopic: 'hall' })
  const ofUser = seriesOf({ name: '', publisher: '' })
  expect(filterOf([one, other])).toEqual({ name: 't,p', publisher: 'a,b', without: 'subtopic' })
  expect(filterOf([one, ofHall])).toEqual({ name: 't', publisher: 'a' })
  expect(filterOf([one, ofUser])).toEqual({ without: 'subtopic' })
  expect(filterOf([])).toEqual({})
})

test('the names of devices are shown where there are several or some are chosen, in natural order', () => {
  const names: Record<string, string> = { a: 'pump 10', b: 'pump 9' }
  const labels = (isChosen: boolean, ...series: Parameters<typeof seriesOf>[0][]) =>
    namedSeries(series.map(seriesOf), (id) => names[id] ?? id, isChosen).map(({ label }) => label)
  const both = [
    { name: 't', publisher: 'a' },
    { name: 'p', publisher: 'b' },
  ]
  expect(labels(false, ...both)).toEqual(['pump 9 p', 'pump 10 t'])
  expect(labels(true, { name: 't', publisher: 'a' })).toEqual(['pump 10 t'])
  const ofOne = [
    { publisher: 'a', subtopic: 'hall' },
    { name: 't10', publisher: 'a' },
    { name: 't9', publisher: 'a' },
  ]
  expect(labels(false, ...ofOne)).toEqual(['hall value', 't9', 't10'])
})

test('a choice survives its address, whatever the names contain', () => {
  const series = [
    seriesOf({ name: 'temperature', unit: 'Cel', publisher: '01890a5d' }),
    seriesOf({ name: '%RH * "50" +1', unit: '%', publisher: '', subtopic: 'hall.1' }),
    seriesOf({ name: 'Ω', publisher: 'x' }),
  ]
  const address = new URLSearchParams({ series: formatChoice(series) }).toString()
  expect(address.startsWith('series=01890a5d*temperature*Cel+')).toBe(true)
  expect(parseChoice(new URLSearchParams(address).get('series') ?? '')).toEqual(series)
  expect(parseChoice('')).toBeUndefined()
  expect(parseChoice(formatChoice([]))).toEqual([])
  expect(parseChoice('%')).toEqual([])
})
