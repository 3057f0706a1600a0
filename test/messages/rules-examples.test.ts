// examples/rules; docs/guides/rules.md
import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { parse } from 'yaml'
import { until } from '../harness/until.ts'
import { expectStatus, send } from './consumers-support.ts'
import { sendRecords } from './rules-support.ts'
import { startPlant } from './support.ts'
import type { Device, Plant } from './support.ts'

type Rule = { name: string; source: Record<string, unknown>; for?: string }
const { rules } = parse(readFileSync('examples/rules/rules.yaml', 'utf8')) as { rules: Rule[] }

let plant: Plant
let device: Device
beforeAll(async () => {
  plant = await startPlant()
  device = await plant.newDevice()
})
afterAll(() => plant[Symbol.asyncDispose]())

type Record_ = Record<string, unknown>
const values = (n: string, ...given: number[]): Record_[][] => given.map((v) => [{ n, v }])
const same = (n: string, v: number, count: number) => values(n, ...Array.from({ length: count }, () => v))

/** Packs for which the rule raises, or is pending where it has `for`, and packs for which it does nothing. */
const CASES: Readonly<Record<string, { bad: Record_[][] | Record_[]; good: Record_[][] | Record_[] }>> = {
  'too hot': { bad: values('temperature', 31), good: values('temperature', 29) },
  'hot on average': { bad: same('temperature', 31, 5), good: values('temperature', 20, 20, 20, 20, 31) },
  'changes too fast': { bad: values('temperature', 10, 60), good: same('temperature', 20, 3) },
  'stuck sensor': { bad: same('humidity', 40, 10), good: values('humidity', 1, 2, 3, 4, 5, 6, 7, 8, 9, 10) },
  'low battery': { bad: values('battery', 3.2), good: values('battery', 3.4) },
  'outside of the fence': {
    bad: [
      [
        { n: 'lat', v: 48.5 },
        { n: 'lon', v: 11.5 },
      ],
    ],
    good: [
      [
        { n: 'lat', v: 48.1 },
        { n: 'lon', v: 11.5 },
      ],
    ],
  },
  'door open': { bad: [[{ n: 'door', vb: true }]], good: [[{ n: 'door', vb: false }]] },
  'cooler while the window is open': {
    bad: [[{ n: 'window', v: 1 }], [{ n: 'heating', v: 50 }]],
    good: [[{ n: 'window', v: 0 }], [{ n: 'heating', v: 50 }]],
  },
  'device reports an error': { bad: [{ status: 503 }], good: [{ status: 200 }, { other: 1 }] },
  'burst of messages': { bad: same('events', 1, 21), good: same('events', 1, 20) },
}

test('every example has a case', () => {
  expect(rules.map(({ name }) => name).toSorted()).toEqual(Object.keys(CASES).toSorted())
  expect(rules).toHaveLength(10)
})

test.each(rules.map((rule) => [rule.name, rule] as const))('%s', async (name, rule) => {
  const call = plant.owner.call
  for (const kind of ['bad', 'good'] as const) {
    const channel = await plant.newChannel()
    await plant.connect(device, channel)
    const packs = CASES[name]?.[kind] ?? []
    for (const pack of packs)
      if (Array.isArray(pack)) await sendRecords(plant, device, channel, pack)
      else await send(plant, device, channel, pack)
    const source = { ...rule.source, channels: [channel] }
    // Nothing is held back: a trial of a minute sees no two minutes.
    const tried = { ...rule, for: '0s', source, description: undefined }
    const records = packs.flat().length
    const names = rule.source['names'] as string[] | undefined
    const seen = packs.flat().filter(({ n }) => names === undefined || names.includes(String(n))).length
    expect(records).toBeGreaterThan(0)
    const result = await until(async () => {
      const answer = expectStatus(200, await call('POST', `/${plant.domainId}/rules/try`, tried))
      const trial = answer.json<{ seen: number; raised: number }>()
      return trial.seen === seen ? trial : undefined
    }, 'the trial sees all records')
    expect(result.raised, kind).toBe(kind === 'bad' ? 1 : 0)
  }
  const stored = await call('POST', `/${plant.domainId}/rules`, rule)
  expect(stored.status, stored.text).toBe(201)
})
