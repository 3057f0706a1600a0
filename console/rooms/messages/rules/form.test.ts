import { expect, test } from 'vitest'
import type { Rule } from '../../../api/operations.ts'
import { bodyOf, conditionText, formOf, lackOf, newAction, standingOf } from './form.ts'

const RULE: Rule = {
  id: 'r',
  domain_id: 'd',
  name: 'heat',
  description: 'of the boilers',
  status: 'enabled',
  source: {
    type: 'messages',
    channels: ['h'],
    subtopic: 'a/#',
    names: ['t', 'u'],
    clients: ['c'],
    groups: ['g'],
    tags: ['x'],
  },
  condition: 'value > 30.0',
  for: '2m',
  clear_when: 'value < 28.0',
  clear_for: '1m',
  cooldown: '1h',
  severity: 'major',
  window_time: 'message',
  actions: [
    { type: 'alarm', text: '{{ name }}' },
    {
      type: 'publish',
      channel: 'h',
      subtopic: 'hot',
      payload: 'x',
      content_type: 'text/plain',
      on: ['raise', 'clear'],
    },
    { type: 'start', task: 't', on: ['repeat'] },
    { type: 'mail', to: ['ann@example.com', 'bob@example.com'], subject: 's', text: 'x', on: ['raise'] },
    { type: 'webhook', url: 'https://example.com/', payload: '{"text": "x"}', on: ['clear', 'escalate'], after: '15m' },
  ],
  named: [],
  position: '0-0-0',
  seen: 0,
  matched: 0,
  unmatchable: 0,
  raised: 0,
  acted: 0,
  open_alarms: 0,
  created_by: 'u',
  created_at: '2026-01-02T03:04:05Z',
  updated_at: '2026-01-02T03:04:05Z',
}

test('a form that is not changed sends what was there', () => {
  const { name, description, source, condition, clear_when, clear_for, cooldown, severity, window_time, actions } = RULE
  const shape = { for: RULE.for, clear_when, clear_for, cooldown, severity, window_time }
  const given = { name, description, source, condition, condition_task: '' }
  expect(bodyOf(formOf(RULE, 'UTC'))).toEqual({ ...given, ...shape, actions })
})

test('a task that decides takes the place of the condition, for messages alone', () => {
  const form = { ...formOf(RULE, 'UTC'), conditionTask: 't' }
  expect(bodyOf(form)).toMatchObject({ condition: '', condition_task: 't', clear_when: '', for: '2m', clear_for: '1m' })
  expect(bodyOf({ ...form, sourceType: 'state' })).toMatchObject({ condition: 'value > 30.0', condition_task: '' })
  expect(bodyOf({ ...form, sourceType: 'silence' })).toMatchObject({ condition: '', condition_task: '' })
  const rule = { ...RULE, condition: '', condition_task: 't', clear_when: '' }
  expect(bodyOf(formOf(rule, 'UTC'))).toMatchObject({ condition: '', condition_task: 't' })
  expect(conditionText(rule)).toBe('decided by the task t')
  expect(conditionText({ ...rule, named: [{ type: 'task', id: 't', name: 'hot' }] })).toBe('decided by the task hot')
})

test('an empty form is a rule over all messages that raises an alarm', () => {
  expect(bodyOf(formOf(undefined, 'UTC'))).toEqual({
    name: '',
    description: '',
    source: { type: 'messages' },
    condition: '',
    condition_task: '',
    for: '0s',
    clear_when: '',
    clear_for: '0s',
    cooldown: '0s',
    severity: 'warning',
    window_time: 'arrival',
    actions: [{ type: 'alarm' }],
  })
})

test('what is empty in the form of a rule that exists is taken away from it', () => {
  const form = {
    ...formOf(RULE, 'UTC'),
    hold: ' ',
    clearWhen: ' ',
    cooldown: '',
    names: ' ,',
    subtopic: '',
    channels: [],
    tags: '',
  }
  expect(bodyOf(form)).toMatchObject({ for: '0s', clear_when: '', cooldown: '0s' })
  expect(bodyOf(form).source).toEqual({ type: 'messages', clients: ['c'], groups: ['g'] })
})

test('a form of state has no names and no subtopic, and keeps its condition', () => {
  const rule = { ...RULE, source: { type: 'state' as const, tags: ['x'], document: 'config' }, condition: '!online' }
  expect(bodyOf(formOf(rule, 'UTC'))).toMatchObject({ source: rule.source, condition: '!online', for: '2m' })
  const changed = { ...formOf(RULE, 'UTC'), sourceType: 'state' as const, document: ' ' }
  expect(bodyOf(changed).source).toEqual({ type: 'state', channels: ['h'], clients: ['c'], groups: ['g'], tags: ['x'] })
  expect(bodyOf({ ...formOf(rule, 'UTC'), sourceType: 'messages' }).source).toEqual({ type: 'messages', tags: ['x'] })
})

test('a form of silence has no condition, and its share is in percent', () => {
  const source = { type: 'silence' as const, channels: ['h'], after: '15m', share: 0.25 }
  const rule = { ...RULE, source, condition: '', for: '0s', clear_when: '', clear_for: '0s' }
  const form = formOf(rule, 'UTC')
  expect(form).toMatchObject({ sourceType: 'silence', after: '15m', share: '25' })
  const body = { source, condition: '', for: '0s', clear_when: '', clear_for: '0s' }
  expect(bodyOf(form)).toMatchObject(body)
  // What was typed for messages is left.
  expect(bodyOf({ ...form, condition: 'value > 1', hold: '1m', clearWhen: 'x', clearHold: '1m' })).toMatchObject(body)
  expect(bodyOf({ ...form, share: ' ' }).source).toEqual({ type: 'silence', channels: ['h'], after: '15m' })
})

test('a form of a schedule has names and a condition, or acts at each time', () => {
  const source = {
    type: 'schedule' as const,
    schedule: '30 5 * * 1-5',
    timezone: 'Asia/Tokyo',
    names: ['t'],
    catch_up: 'once' as const,
  }
  const rule = { ...RULE, source, condition: 'mean("24h") > 1.0' }
  const form = formOf(rule, 'UTC')
  expect(form).toMatchObject({
    schedule: { rhythm: 'weekdays', time: '05:30' },
    timezone: 'Asia/Tokyo',
    catchesUp: true,
  })
  expect(bodyOf(form)).toMatchObject({ source, condition: 'mean("24h") > 1.0', for: '2m', cooldown: '1h' })
  // What was typed for messages is left.
  const bare = { ...form, names: ' ', clients: ['c'], groups: ['g'], tags: 'x', subtopic: 'a', catchesUp: false }
  expect(bodyOf(bare)).toMatchObject({ condition: '', for: '0s', clear_when: '', clear_for: '0s', cooldown: '0s' })
  expect(bodyOf(bare).source).toEqual({ type: 'schedule', schedule: '30 5 * * 1-5', timezone: 'Asia/Tokyo' })
  expect(lackOf(bare)).toContain('An alarm needs names and a condition')
  expect(lackOf(form)).toBeUndefined()
  expect(lackOf({ ...form, schedule: { ...form.schedule, rhythm: 'cron', cron: ' ' } })).toBe(
    'Say when it is evaluated first',
  )
  expect(formOf({ ...rule, source: { type: 'schedule', schedule: '0 6 * * *' } }, 'Asia/Tokyo').timezone).toBe('UTC')
  expect(formOf(undefined, 'Asia/Tokyo').timezone).toBe('Asia/Tokyo')
})

test('it says what must be chosen', () => {
  const form = formOf(undefined, 'UTC')
  expect(lackOf(form)).toBeUndefined()
  expect(lackOf({ ...form, actions: [] })).toBe('Add an action first')
  // A rule has one alarm, so a second action is another one.
  const second = newAction(form.actions)
  expect(second.type).toBe('publish')
  expect(lackOf({ ...form, actions: [second] })).toBe('Choose the channel first')
  expect(lackOf({ ...form, actions: [{ ...second, type: 'start' }] })).toBe('Choose the task first')
  expect(lackOf({ ...form, actions: [{ ...second, type: 'mail', to: ' ,' }] })).toBe('Give an address first')
  expect(lackOf({ ...form, actions: [{ ...second, type: 'webhook', url: ' ' }] })).toBe('Give the URL first')
  expect(lackOf({ ...form, actions: [{ ...second, channel: 'h', on: [] }] })).toBe('Choose when the action acts first')
  expect(newAction([second]).type).toBe('alarm')
})

test('its state is the worst that is known', () => {
  const at = '2026-01-02T03:04:05Z'
  const failing = { ...RULE, last_error: { at, reason: 'no', count: 1 } }
  expect(standingOf(RULE).text).toBe('Enabled')
  expect(standingOf(failing).tone).toBe('warn')
  expect(standingOf({ ...failing, paused: { at, reason: 'no' } }).text).toBe('Paused')
  expect(standingOf({ ...failing, paused: { at, reason: 'no' }, status: 'disabled' }).text).toBe('Disabled')
})
