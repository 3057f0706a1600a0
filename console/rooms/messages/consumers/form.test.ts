import { expect, test } from 'vitest'
import type { Consumer } from '../../../api/operations.ts'
import { FROM_LATEST, bodyOf, formOf, fromOf, standingOf } from './form.ts'

const CONSUMER: Consumer = {
  id: 'c',
  domain_id: 'd',
  name: 'readings',
  channels: ['h'],
  filter: { subtopic: 'a.>', publisher: 'x,y', protocol: 'mqtt' },
  order: 'channel',
  max_in_flight: 5,
  ack_wait: '1m',
  max_deliver: 2,
  position: '0-0-0',
  lag_seconds: 0,
  in_flight: 0,
  held: 0,
  dead_letters: 0,
  expired: 0,
  created_by: 'u',
  created_at: '2026-01-02T03:04:05Z',
  updated_at: '2026-01-02T03:04:05Z',
}

test('a form that is not changed sends what was there', () => {
  const { name, channels, filter, order, max_in_flight, ack_wait, max_deliver } = CONSUMER
  expect(bodyOf(formOf(CONSUMER))).toEqual({ name, channels, filter, order, max_in_flight, ack_wait, max_deliver })
})

test('an empty form leaves out what has a default, and an empty filter is sent: it removes the one that was there', () => {
  expect(bodyOf(formOf(undefined))).toEqual({ name: '', channels: [], filter: {}, order: 'client' })
  const cleared = { ...formOf(CONSUMER), subtopic: ' ', publishers: [], protocol: '' as const }
  expect(bodyOf(cleared).filter).toEqual({})
})

test('ids may be written with spaces', () => {
  expect(bodyOf({ ...formOf(undefined), publishers: ['x', 'y'] }).filter).toEqual({ publisher: 'x,y' })
})

test('it begins at a word, a position, or a time of the browser', () => {
  expect(fromOf(FROM_LATEST)).toBe('latest')
  expect(fromOf({ ...FROM_LATEST, beginning: 'position', position: ' 1-2-3 ' })).toBe('1-2-3')
  const time = '2026-01-02T03:04:05'
  expect(fromOf({ ...FROM_LATEST, beginning: 'time', time })).toBe(new Date(time).toISOString())
  expect(fromOf({ ...FROM_LATEST, beginning: 'time', time: 'soon' })).toBe('soon')
})

test('its state is the worst that is known', () => {
  expect(standingOf(CONSUMER).tone).toBe('ok')
  const waiting = { ...CONSUMER, behind_since: '2026-01-02T03:04:05Z', lag_seconds: 60 }
  expect(standingOf(waiting).tone).toBe('active')
  expect(standingOf({ ...waiting, lag_seconds: 6.5 * 86_400 }).tone).toBe('warn')
  expect(standingOf({ ...waiting, last_error: { at: waiting.behind_since, reason: 'no' } }).tone).toBe('bad')
})
