import { expect, test } from 'vitest'
import type { MaintenanceWindow } from '../../../api/operations.ts'
import { bodyOf, formOf, lackOf, scopeText, standingOf } from './form.ts'

const ONCE: MaintenanceWindow = {
  id: 'w',
  domain_id: 'd',
  name: 'roof',
  description: '',
  starts_at: '2026-12-01T08:00:00.000Z',
  ends_at: '2026-12-03T16:00:00.000Z',
  rules: [],
  clients: ['c1', 'c2'],
  groups: [],
  tags: ['pump', 'fan'],
  named: [{ type: 'client', id: 'c1', name: 'boiler' }],
  next_at: '2026-12-01T08:00:00.000Z',
  created_by: 'u',
  created_at: '2026-11-01T00:00:00.000Z',
  updated_at: '2026-11-01T00:00:00.000Z',
}
const WEEKLY: MaintenanceWindow = {
  ...ONCE,
  schedule: '30 3 * * 6',
  timezone: 'Europe/Berlin',
  duration: '90m',
  clients: [],
  tags: [],
  named: [],
}

test('a window that is once is sent as it was read', () => {
  expect(bodyOf(formOf(ONCE, 'UTC'))).toEqual({
    name: 'roof',
    description: '',
    starts_at: ONCE.starts_at,
    ends_at: ONCE.ends_at,
    schedule: '',
    timezone: '',
    duration: '',
    rules: [],
    clients: ['c1', 'c2'],
    groups: [],
    tags: ['pump', 'fan'],
  })
})

test('a window that is repeated keeps its rhythm, and loses it when it is once', () => {
  const form = formOf(WEEKLY, 'UTC')
  expect(form.schedule.rhythm).toBe('weekly')
  expect(bodyOf(form)).toMatchObject({ schedule: '30 3 * * 6', timezone: 'Europe/Berlin', duration: '90m' })
  expect(bodyOf({ ...form, isRepeated: false })).toMatchObject({ schedule: '', timezone: '', duration: '' })
})

test('a new window has the zone of the browser, and what is no time is sent as it is', () => {
  const form = { ...formOf(undefined, 'Asia/Tokyo'), startsAt: 'soon', endsAt: ' ' }
  expect(form.timezone).toBe('Asia/Tokyo')
  expect(bodyOf(form)).toMatchObject({ starts_at: 'soon', ends_at: '', tags: [] })
})

test('a rhythm is missing only where it is repeated', () => {
  const none = {
    ...formOf(undefined, 'UTC'),
    schedule: { ...formOf(undefined, 'UTC').schedule, rhythm: 'cron' as const, cron: ' ' },
  }
  expect(lackOf(none)).toBeUndefined()
  expect(lackOf({ ...none, isRepeated: true })).toBe('Say when it starts first')
})

test('a list says whether it is now, and what it is about', () => {
  const { next_at: _next, ...over } = ONCE
  expect(standingOf(ONCE).text).toBe('Planned')
  expect(standingOf({ ...ONCE, active_until: ONCE.ends_at ?? '' }).text).toBe('In maintenance')
  expect(standingOf(over).text).toBe('Over')
  expect(scopeText(ONCE)).toBe('client boiler and 1 more, tag pump or fan')
  expect(scopeText(WEEKLY)).toBe('all rules and clients')
  expect(scopeText({ ...WEEKLY, groups: ['gone'] })).toBe('group that was deleted')
})
