import { expect, test } from 'vitest'
import { excessOf, offersBatches, offersExcess, orderOf, triggerWith } from './trigger-form.ts'
import type { Trigger } from './trigger-form.ts'

const CHANNEL = '0c2ce4ef-6ac4-4a8e-95ad-5bb5b1fbb3ae'
/** What is saved when the user changes these fields of the form, and nothing else. */
const saved = (before: Trigger | undefined, changes: Partial<Parameters<typeof triggerWith>[1]> = {}) =>
  triggerWith(before, {
    channel: before?.channel_id ?? CHANNEL,
    name: before?.name ?? '',
    rateLimit: before?.rate_limit ?? '',
    excess: excessOf(before),
    batch: String(before?.batch ?? ''),
    order: orderOf(before),
    ...changes,
  })

test('messages beyond a new rate limit wait', () => {
  const limited = { channel_id: CHANNEL, rate_limit: '10/1m', excess: 'wait' }
  expect(saved(undefined, { rateLimit: '10/1m' })).toEqual(limited)
  expect(saved({ channel_id: CHANNEL }, { rateLimit: ' 10/1m ' })).toEqual(limited)
  expect(saved(undefined, { rateLimit: '10/1m', excess: 'drop' })).toEqual({ ...limited, excess: 'drop' })
  expect(saved(undefined)).toEqual({ channel_id: CHANNEL })
})

test('a trigger that is saved keeps what it has', () => {
  const rules: Trigger[] = [
    { channel_id: CHANNEL, rate_limit: '10/1m' },
    { channel_id: CHANNEL, rate_limit: '10/1m', excess: 'drop' },
    { channel_id: CHANNEL, rate_limit: '10/1m', excess: 'wait' },
    { channel_id: CHANNEL, rate_limit: '10/1m', debounce: '5s', excess: 'drop' },
    { channel_id: CHANNEL, subtopic: 'hall', name: 'steam', when: { comparator: 'gt', value: 4 }, debounce: '5s' },
    { channel_id: CHANNEL, batch: 1, order: 'none' },
    { channel_id: CHANNEL, batch: 100, order: 'client' },
  ]
  for (const rule of rules) expect(saved(rule)).toEqual(rule)
  for (const rule of rules.slice(0, 4))
    expect(saved(rule, { rateLimit: '5/1s' })).toEqual({ ...rule, rate_limit: '5/1s' })
})

test('what the user changes or clears is saved', () => {
  const rule: Trigger = { channel_id: CHANNEL, name: 'steam', rate_limit: '10/1m', excess: 'wait' }
  expect(saved(rule, { excess: 'drop' })).toEqual({ ...rule, excess: 'drop' })
  expect(saved({ channel_id: CHANNEL, rate_limit: '10/1m' }, { excess: 'wait' }).excess).toBe('wait')
  expect(saved(rule, { rateLimit: '', name: '' })).toEqual({ channel_id: CHANNEL })
  expect(saved(undefined, { batch: ' 100 ', order: 'channel' })).toEqual({
    channel_id: CHANNEL,
    batch: 100,
    order: 'channel',
  })
  expect(saved({ channel_id: CHANNEL, batch: 100, order: 'client' }, { batch: '', order: '' })).toEqual({
    channel_id: CHANNEL,
  })
})

test('with debounce nothing waits, so it is not offered', () => {
  const rule: Trigger = { channel_id: CHANNEL, debounce: '5s' }
  expect(offersExcess(rule, '10/1m')).toBe(false)
  expect(saved(rule, { rateLimit: '10/1m' })).toEqual({ ...rule, rate_limit: '10/1m' })
  expect(offersExcess({ channel_id: CHANNEL }, '')).toBe(false)
  expect(offersExcess(undefined, '10/1m')).toBe(true)
  expect(offersBatches(rule)).toBe(false)
  expect(offersBatches(undefined)).toBe(true)
})
