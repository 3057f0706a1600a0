import { expect, test } from 'vitest'
import { bridged, coarsened, factorOf, lonely, stepText, summaryOf, usualInterval } from './points.ts'

const none = undefined
/** A value in every `every`-th of `length` steps. */
const every = (step: number, length: number) => Array.from({ length }, (_none, at) => (at % step === 0 ? 1 : null))
const slotsOf = (mean: (number | null)[], count = mean.map((one) => (one === null ? null : 1))) => ({
  mean,
  min: mean,
  max: mean,
  count,
})

test('a value that no line leads to is lonely, also at either end', () => {
  expect(lonely([])).toEqual([])
  expect(lonely([1])).toEqual([0])
  expect(lonely([null, 5, null, 1, 2, null, 0])).toEqual([1, 6])
  expect(lonely([1, 2, 3])).toEqual([])
  expect(lonely([1, none, none, 3, null, 7])).toEqual([5])
  expect(lonely([none, 4, none])).toEqual([1])
})

test('the usual interval follows from the steps between records, and from the records of a step', () => {
  expect(usualInterval(every(60, 300), 1)).toBe(60)
  expect(usualInterval([5, 5, 5, 5], 300)).toBe(60)
  expect(usualInterval([null, 1, null], 10)).toBeUndefined()
  expect(usualInterval([null, 4, null], 60)).toBe(15)
  expect(usualInterval([], 1)).toBeUndefined()
  // 90 s in steps of a minute: two steps, then one.
  expect(usualInterval([1, null, 1, 1, null, 1, 1, null, 1], 60)).toBe(96)
  // A gap of an hour among minutes is no interval.
  expect(usualInterval([...every(1, 10), ...Array.from<null>({ length: 60 }).fill(null), ...every(1, 10)], 60)).toBe(60)
})

test('the step of a series is never below its usual interval, and plain where that is near', () => {
  expect(factorOf(60, 1)).toBe(60)
  expect(factorOf(60.2, 1)).toBe(60)
  expect(factorOf(58, 1)).toBe(60)
  expect(factorOf(90, 1)).toBe(90)
  expect(factorOf(90.4, 1)).toBe(91)
  expect(factorOf(20, 60)).toBe(1)
  expect(factorOf(undefined, 1)).toBe(1)
  expect(factorOf(3_600, 60)).toBe(60)
})

test('steps are put together with the mean of their records, from whole steps on', () => {
  const slots = {
    mean: [1, 3, null, 10, null],
    min: [1, 2, null, 9, null],
    max: [1, 4, null, 12, null],
    count: [1, 3, null, 1, null],
  }
  expect(coarsened(slots, 1, 0)).toBe(slots)
  expect(coarsened(slots, 3, 0)).toEqual({
    mean: [2.5, null, null, 10, null],
    min: [1, null, null, 9, null],
    max: [4, null, null, 12, null],
    count: [4, null, null, 1, null],
  })
  // The grid begins in the middle of a step.
  expect(coarsened(slots, 3, 2).mean).toEqual([1, 3, null, null, null].map((one, at) => (at === 1 ? 4.75 : one)))
})

test('a gap below three usual intervals is bridged, and a longer one stays open', () => {
  expect(bridged([1, null, null, 2, null], 1)).toEqual([1, null, null, 2, null])
  expect(bridged([1, null, 2, null, null, null, 3], 1)).toEqual([1, none, 2, null, null, null, 3])
  expect(bridged(every(60, 122), 60).filter((one) => one === null)).toHaveLength(1)
  expect(bridged([1, ...Array.from<null>({ length: 179 }).fill(null), 2], 60)).toContain(null)
  expect(bridged([1, ...Array.from<null>({ length: 178 }).fill(null), 2], 60)).not.toContain(null)
  // Sixty records in each step: the next step is no gap, and a missing one is.
  expect(bridged([1, 2, null, 3], 1 / 60)).toEqual([1, 2, null, 3])
})

test('the summary of a series is that of its records', () => {
  expect(summaryOf(slotsOf([null, null]))).toBeUndefined()
  expect(summaryOf({ mean: [1, null, 4], min: [0, null, 2], max: [3, null, 9], count: [3, null, 1] })).toEqual({
    last: 4,
    min: 0,
    mean: 1.75,
    max: 9,
  })
})

test('a step is written in its largest whole unit', () => {
  expect([1, 90, 60, 300, 3_600, 5_400, 86_400, 604_800].map(stepText)).toEqual([
    '1 s',
    '90 s',
    '1 min',
    '5 min',
    '1 h',
    '90 min',
    '1 d',
    '7 d',
  ])
})
