// docs/guides/rules.md#schedules
import { expect, test } from 'vitest'
import { compileDefinition } from './compile.ts'
import type { RuleDefinition } from './schema.ts'
import { isSameTimetable, nextTickOf } from './timetable.ts'

const CHANNEL = '11111111-1111-4111-8111-111111111111'
const at = (text: string) => new Date(text)
const scheduled = (source: object, rest: object = {}) =>
  ({ source: { type: 'schedule', schedule: '0 6 * * *', ...source }, condition: '', ...rest }) as RuleDefinition

test('a report in the hour that daylight saving skips is right after it, and in one that is twice there is one', () => {
  const report = scheduled({ schedule: '30 2 * * *', timezone: 'Europe/Paris' })
  const skipped = nextTickOf(report, at('2026-03-28T12:00:00Z')) as Date
  expect(skipped).toEqual(at('2026-03-29T01:00:00Z'))
  expect(nextTickOf(report, skipped)).toEqual(at('2026-03-30T00:30:00Z'))
  const repeated = nextTickOf(report, at('2026-10-24T12:00:00Z')) as Date
  expect(repeated).toEqual(at('2026-10-25T00:30:00Z'))
  expect(nextTickOf(report, repeated)).toEqual(at('2026-10-26T01:30:00Z'))
})

test('the time zone is UTC unless another one is given', () => {
  expect(nextTickOf(scheduled({}), at('2026-07-01T00:00:00Z'))).toEqual(at('2026-07-01T06:00:00Z'))
  const paris = scheduled({ timezone: 'Europe/Paris' })
  expect(nextTickOf(paris, at('2026-07-01T00:00:00Z'))).toEqual(at('2026-07-01T04:00:00Z'))
  expect(isSameTimetable(scheduled({}).source, scheduled({ timezone: 'UTC' }).source)).toBe(true)
  expect(isSameTimetable(scheduled({}).source, paris.source)).toBe(false)
  expect(isSameTimetable(scheduled({}).source, scheduled({ names: ['t'] }).source)).toBe(true)
})

const PUBLISH = { type: 'publish', channel: CHANNEL }
const START = { type: 'start', task: CHANNEL }

test.each([
  ['no schedule', { schedule: '' }, {}, '/source/schedule'],
  ['no cron expression', { schedule: 'daily' }, {}, '/source/schedule'],
  ['a time instead of one', { schedule: '2026-01-01T00:00:00' }, {}, '/source/schedule'],
  ['one without a future time', { schedule: '0 0 30 2 *' }, {}, '/source/schedule'],
  ['an unknown time zone', { timezone: 'Mars/Olympus' }, {}, '/source/timezone'],
  ['clients without names', { clients: [CHANNEL] }, {}, '/source/clients'],
  ['a subtopic without names', { subtopic: 'a' }, {}, '/source/subtopic'],
  ['a document', { document: 'x' }, {}, '/source/document'],
  ['a condition without names', {}, { condition: 'value > 1.0' }, '/condition'],
  ['a condition about a message', { names: ['t'] }, { condition: 'json.a > 1' }, '/condition'],
  ['a condition about a state', { names: ['t'] }, { condition: 'online' }, '/condition'],
  ['an end about a message', { names: ['t'] }, { condition: 'value > 1.0', clear_when: 'bool_value' }, '/clear_when'],
  ['for without a condition', {}, { for: '1m' }, '/for'],
  ['an end without a condition', {}, { clear_when: 'value < 1.0' }, '/clear_when'],
  ['a cooldown without a condition', {}, { cooldown: '1m' }, '/cooldown'],
  ['an alarm without a condition', {}, { actions: [PUBLISH, { type: 'alarm' }] }, '/actions/1'],
  ['no actions without a condition', {}, { actions: [] }, '/actions'],
  ['only repetitions without a condition', {}, { actions: [{ ...PUBLISH, on: ['repeat'] }] }, '/actions/0/on'],
  ['windows without names', {}, { actions: [{ ...PUBLISH, payload: `"{{ mean('1h') }}"` }] }, '/actions'],
  ['a start without a channel', {}, { actions: [START] }, '/actions/0'],
])('%s is refused at its field', (_, source, rest, path) => {
  expect(() => compileDefinition(scheduled(source, { actions: [PUBLISH], ...rest }))).toThrow(
    expect.objectContaining({ details: [expect.objectContaining({ path })] }) as Error,
  )
})

test('the fields of a schedule are refused with other sources', () => {
  const messages = (source: object) => ({ source: { type: 'messages', ...source }, condition: 'value > 1.0' })
  for (const [field, value] of Object.entries({ schedule: '0 6 * * *', timezone: 'UTC', catch_up: 'once' }))
    expect(() => compileDefinition(messages({ [field]: value }) as RuleDefinition)).toThrow(
      expect.objectContaining({ details: [expect.objectContaining({ path: `/source/${field}` })] }) as Error,
    )
})

test('what is given is compiled', () => {
  const report = compileDefinition(scheduled({ channels: [CHANNEL] }, { actions: [PUBLISH, START] }))
  expect(report).toMatchObject({
    schedule: { isOverSeries: false, hasCondition: false, catchUp: 'none' },
    usesClients: false,
  })
  const watch = compileDefinition(scheduled({ names: ['t'], catch_up: 'once' }, { condition: 'mean("24h") > 25.0' }))
  expect(watch).toMatchObject({
    schedule: { isOverSeries: true, hasCondition: true, catchUp: 'once' },
    usesClients: true,
  })
  expect(watch.windowMs).toBe(86_400_000)
})
