import { expect, test } from 'vitest'
import { findUnit, toPrimaryUnit } from './units.ts'

test('the units of RFC 8428 and RFC 8798 are known, and others are not', () => {
  for (const symbol of ['V', 'Cel', '%RH', '/', 'B', 'kg/m3']) expect(findUnit(symbol)).toEqual({ symbol })
  expect(findUnit('furlong')).toBeUndefined()
})

test('secondary units are converted to their primary unit', () => {
  expect(toPrimaryUnit(2, 'kWh')).toEqual({ value: 7_200_000, unit: 'J' })
  expect(toPrimaryUnit(-40, 'dBm')).toEqual({ value: -70, unit: 'dBW' })
  expect(toPrimaryUnit(36, 'km/h')).toEqual({ value: 10, unit: 'm/s' })
  expect(toPrimaryUnit(21, 'Cel')).toEqual({ value: 21, unit: 'Cel' })
  expect(toPrimaryUnit(1, 'furlong')).toEqual({ value: 1, unit: 'furlong' })
})
