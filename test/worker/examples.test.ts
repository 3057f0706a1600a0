/** The examples that live on channels, called as a trigger calls them (task-manager.md section 5). */
import { readFileSync } from 'node:fs'
import { create } from '@bufbuild/protobuf'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { GrantKind, GrantSchema } from '#proto/index.ts'
import { JoinedWorker } from './joined-worker.ts'
import { until } from './pool.ts'
import { runRef } from './scripted-manager.ts'

let joined: JoinedWorker
beforeAll(async () => {
  joined = await JoinedWorker.start()
})
afterAll(() => joined[Symbol.asyncDispose]())

const example = (name: string) => readFileSync(new URL(`../../examples/${name}/${name}.wasm`, import.meta.url))
const grantNamed = (kind: GrantKind, name: string) => create(GrantSchema, { kind, channelId: 'channel-1', name })

/** What the run asked of its channel. */
async function callOf(runId: string) {
  const find = () => joined.manager.heard('guestCall').find(({ run }) => run?.runId === runId)
  // A component of 12 MB is transpiled first.
  await until(() => find() !== undefined, 60_000)
  return find()?.call
}

async function publishedBy(runId: string): Promise<unknown> {
  const call = await callOf(runId)
  if (call?.case !== 'publish') throw new Error('it did not publish')
  const reply = { run: runRef(runId), callId: 1, outcome: { case: 'published', value: {} } } as const
  joined.manager.tell({ case: 'guestReply', value: reply })
  return JSON.parse(Buffer.from(call.value.payload).toString())
}

test.each([
  [81.5, true, '[1]'],
  [80, false, '[0]'],
])('the threshold alarm publishes at %d whether it is one', async (value, isAlarm, resultsJson) => {
  const grants = [grantNamed(GrantKind.PUBLISH, 'alarms')]
  const runId = `alarm-${value}`
  joined.manager.assign(example('threshold-alarm'), runId, {
    taskName: 'check',
    inputsJson: JSON.stringify([value, 1_700_000_000]),
    grants,
  })
  expect(await publishedBy(runId)).toEqual([
    { n: 'alarm', t: 1_700_000_000, vb: isAlarm },
    { n: 'value', t: 1_700_000_000, v: value },
  ])
  expect(await joined.manager.result(runId)).toMatchObject({ resultsJson })
})

test('the moving average returns the mean of the stored values', async () => {
  joined.manager.assign(example('moving-average'), 'mean', {
    taskName: 'mean',
    inputsJson: '[4,1700000000]',
    grants: [grantNamed(GrantKind.READ, 'readings')],
  })
  expect(await callOf('mean')).toMatchObject({ case: 'read', value: { channelId: 'channel-1', limit: 10 } })
  const records = [
    { n: 't', v: 4 },
    { n: 't', v: -1.5 },
    { n: 't', v: 2.5e2 },
    { n: 'text', vs: 'v":9' },
  ]
  const outcome = { case: 'recordsJson', value: Buffer.from(JSON.stringify(records)) } as const
  joined.manager.tell({ case: 'guestReply', value: { run: runRef('mean'), callId: 1, outcome } })
  expect(await joined.manager.result('mean')).toMatchObject({ resultsJson: `[${(4 - 1.5 + 250) / 3}]` })
})

test('the unit conversion publishes converted records', async () => {
  const records = [
    { n: 'room', t: 1_700_000_000, u: 'degF', v: 212 },
    { n: 'door', t: 1_700_000_000, vb: true },
    { n: 'tyre', t: 1_700_000_001, u: 'bar', v: 2.5 },
  ]
  joined.manager.assign(example('unit-conversion'), 'units', {
    taskName: 'convert',
    inputsJson: JSON.stringify([JSON.stringify({ channel_id: 'raw', records })]),
    grants: [grantNamed(GrantKind.PUBLISH, 'converted')],
  })
  expect(await publishedBy('units')).toEqual([
    { n: 'room', t: 1_700_000_000, u: 'Cel', v: 100 },
    { n: 'tyre', t: 1_700_000_001, u: 'Pa', v: 250_000 },
  ])
  expect(await joined.manager.result('units')).toMatchObject({ resultsJson: '2' })
  joined.manager.assign(example('unit-conversion'), 'refused', {
    taskName: 'convert',
    inputsJson: JSON.stringify([JSON.stringify({ channel_id: 'raw', records })]),
  })
  expect(await joined.manager.result('refused')).toMatchObject({
    error: 'convert returned an error: the task has no grant to publish to "converted"',
  })
})
