/**
 * Kills processes and PostgreSQL while alarms become due to be escalated: each that nobody acknowledged is escalated once by each step, in the order
 * of the steps, and no other one is.
 */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, test } from 'vitest'
import { sleep } from '#core/time.ts'
import { strike } from '../harness/strikes.ts'
import { until } from '../harness/until.ts'
import { createInstallation, startWhole } from '../harness/whole.ts'
import type { Whole } from '../harness/whole.ts'

const KILLS = Number(process.env['SKEIN_TEST_KILLS'] ?? 3)
/** A webhook gets 100 requests at once, and then 600 a minute. */
const ALARMS = 60
const STEPS = ['1m', '1m5s', '1m10s']
/** They are raised over this time, so that they become due over it. */
const RAISED_WITHIN_MS = 30_000
/** What was being posted at a kill is taken up when its lease of two minutes has ended. */
const TOLD_WITHIN_MS = 260_000

test(
  'each alarm that nobody acknowledged is escalated once by each step',
  async () => {
    const told = new Map<string, Set<string>>()
    const order = new Map<number, string[]>()
    const receiver = createServer((request, response) => {
      const chunks: Buffer[] = []
      request.on('data', (chunk: Buffer) => void chunks.push(chunk))
      request.on('end', () => {
        const { id, value, after } = JSON.parse(Buffer.concat(chunks).toString()) as {
          id: string
          value: number
          after: string
        }
        const key = `${value} ${after}`
        if (!told.has(key)) order.set(value, [...(order.get(value) ?? []), after])
        told.set(key, (told.get(key) ?? new Set()).add(id))
        response.end()
      })
    })
    await once(receiver.listen(0, '127.0.0.1'), 'listening')
    const url = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`
    using installation = await createInstallation({ SKEIN_WEBHOOK_HOSTS: new URL(url).host })
    let whole: Whole = await startWhole(installation)
    await using stack = new AsyncDisposableStack()
    stack.defer(() => void receiver.close())
    stack.defer(async () => await whole[Symbol.asyncDispose]())
    const login = await whole.call('POST', '/users/tokens/issue', {
      body: { identity: 'admin', secret: 'the-first-admin' },
    })
    const authorization = `Bearer ${login.json<{ access_token: string }>().access_token}`
    const call = async <Body>(method: string, path: string, body?: unknown): Promise<Body> => {
      const answer = await whole.call(method, path, { authorization, ...(body === undefined ? {} : { body }) })
      expect(answer.status, answer.text).toBeLessThan(300)
      return (answer.text === '' ? undefined : answer.json<Body>()) as Body
    }
    const { id: domainId } = await call<{ id: string }>('POST', '/domains', { name: 'told' })
    const { id: channelId } = await call<{ id: string }>('POST', `/${domainId}/channels`, { name: 'values' })
    const { id: ruleId } = await call<{ id: string }>('POST', `/${domainId}/rules`, {
      name: 'tells of every number',
      source: { type: 'messages', channels: [channelId] },
      condition: 'value >= 0.0',
      actions: [{ type: 'alarm' }, ...STEPS.map((after) => ({ type: 'webhook', url, on: ['escalate'], after }))],
    })
    type Alarm = { id: string; value: number; escalations: number }
    const alarms = async () =>
      (await call<{ alarms: Alarm[] }>('GET', `/${domainId}/alarms?limit=100&rule=${ruleId}`)).alarms
    for (let number = 0; number < ALARMS; number++) {
      await call('POST', `/http/m/${domainId}/c/${channelId}`, [{ n: `number-${number}`, v: number }])
      await sleep(RAISED_WITHIN_MS / ALARMS)
    }
    const raised = await until(async () => {
      const found = await alarms()
      return found.length === ALARMS ? found : undefined
    }, 'all are raised')
    const isAcknowledged = (value: number) => value % 3 === 0
    const ids = raised.filter(({ value }) => isAcknowledged(value)).map(({ id }) => id)
    await call('POST', `/${domainId}/alarms/bulk`, { ids, status: 'acknowledged' })
    const wanted = raised.filter(({ value }) => !isAcknowledged(value)).length * STEPS.length
    for (let turn = 0; turn < KILLS; turn++) {
      await until(() => told.size > (wanted * (turn + 1)) / (KILLS + 2), 'some are escalated', TOLD_WITHIN_MS)
      whole = await strike(installation, whole, turn)
    }
    await until(
      () => told.size >= wanted,
      () => `all are escalated: ${told.size} of ${wanted}`,
      TOLD_WITHIN_MS,
    )
    expect([...told].filter(([, each]) => each.size !== 1)).toEqual([])
    expect([...order.keys()].filter(isAcknowledged)).toEqual([])
    expect([...order.values()].filter((afters) => afters.join() !== STEPS.join())).toEqual([])
    for (const { value, escalations } of await alarms())
      expect(escalations).toBe(isAcknowledged(value) ? 0 : STEPS.length)
    expect(await call('GET', `/${domainId}/rules/${ruleId}`)).toMatchObject({ seen: ALARMS, acted: wanted })
  },
  RAISED_WITHIN_MS + TOLD_WITHIN_MS * 2 + KILLS * 60_000,
)
