/**
 * Kills processes and PostgreSQL while devices report: each change of a state is evaluated once, so that the changes of a device are counted exactly and
 * published once each. SKEIN_TEST_KILLS sets the number of kills.
 */
import { afterEach, beforeEach, expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { strike } from '../harness/strikes.ts'
import { createInstallation, startWhole } from '../harness/whole.ts'
import type { Installation, Whole } from '../harness/whole.ts'

const KILLS = Number(process.env['SKEIN_TEST_KILLS'] ?? 4)
const DEVICES = 4
const REPORTED_MS = 3_000
const DEADLINE_MS = 120_000

let installation: Installation
beforeEach(async () => {
  installation = await createInstallation()
})
afterEach(() => installation[Symbol.dispose]())

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

type Client = { id: string; secret: string }
type Setup = { token: string; domainId: string; clients: Client[]; rule: string }

async function setUp(whole: Whole): Promise<Setup> {
  const json = async <T>(path: string, body: unknown, authorization?: string): Promise<T> => {
    const answer = await whole.call('POST', path, { body, ...(authorization === undefined ? {} : { authorization }) })
    expect(answer.status, answer.text).toBeLessThan(300)
    return answer.json<T>()
  }
  const login = { identity: 'admin', secret: 'the-first-admin' }
  const token = `Bearer ${(await json<{ access_token: string }>('/users/tokens/issue', login)).access_token}`
  const made = async (path: string, body: unknown) => (await json<{ id: string }>(path, body, token)).id
  const domainId = await made('/domains', { name: 'states' })
  const channelId = await made(`/${domainId}/channels`, { name: 'changes' })
  const clients: Client[] = []
  for (let count = 0; count < DEVICES; count++) {
    const client = await json<{ id: string; credentials: { secret: string } }>(`/${domainId}/clients`, {}, token)
    clients.push({ id: client.id, secret: client.credentials.secret })
  }
  const rule = await made(`/${domainId}/rules`, {
    name: 'each change',
    source: { type: 'state', clients: clients.map(({ id }) => id) },
    condition: 'has(reported.n)',
    actions: [
      { type: 'alarm' },
      {
        type: 'publish',
        channel: channelId,
        payload: '{"client": "{{ client.id }}", "n": "{{ reported.n }}"}',
        on: ['raise', 'repeat'],
      },
    ],
  })
  await json(
    `/${domainId}/consumers`,
    { name: 'found', channels: [channelId], max_in_flight: 10_000, ack_wait: '1h', order: 'none' },
    token,
  )
  return { token, domainId, clients, rule }
}

test(
  'each change of a state is evaluated once, also when processes are killed',
  { timeout: DEADLINE_MS + KILLS * 60_000 },
  async () => {
    let whole = await startWhole(installation)
    await using stack = new AsyncDisposableStack()
    stack.defer(async () => await whole[Symbol.asyncDispose]())
    const { token: authorization, domainId, clients, rule } = await setUp(whole)
    const read = async <T>(path: string): Promise<T | undefined> => {
      const answer = await whole.call('GET', `/${domainId}/${path}`, { authorization }).catch(() => undefined)
      return answer?.status === 200 ? answer.json<T>() : undefined
    }
    await until(
      async () => (await read<{ seen: number }>(`rules/${rule}`))?.seen === DEVICES,
      'the rule looked at them',
    )
    // A report that was written and not answered is sent again: it changes nothing.
    const report = async ({ secret }: Client, n: number): Promise<void> => {
      for (;;) {
        const message = { body: { n }, authorization: `Client ${secret}` }
        const answer = await whole.call('PATCH', `/c/${domainId}/state`, message).catch(() => undefined)
        if (answer?.status === 200) return
        await pause(20)
      }
    }
    let sent = 0
    for (let turn = 0; turn < KILLS; turn++) {
      let isOver = false
      let next = sent
      const reporting = (async () => {
        while (!isOver) {
          next++
          for (const client of clients) await report(client, next)
        }
      })()
      await pause(REPORTED_MS)
      whole = await strike(installation, whole, turn)
      await pause(REPORTED_MS / 2)
      isOver = true
      await reporting
      sent = next
    }
    expect(sent).toBeGreaterThan(KILLS)
    const total = sent * DEVICES
    const alarms = await until(
      async () => {
        const found = await read<{ alarms: { client_id: string; count: number }[] }>(`alarms?rule=${rule}`)
        return found?.alarms.reduce((sum, { count }) => sum + count, 0) === total ? found.alarms : undefined
      },
      'all changes are counted',
      DEADLINE_MS,
    )
    expect(alarms.map(({ count }) => count)).toEqual(clients.map(() => sent))
    // The rule looked at each client once, when it began and they had reported nothing.
    const { seen, raised } = (await read<{ seen: number; raised: number }>(`rules/${rule}`)) ?? { seen: 0, raised: 0 }
    expect({ matched: seen - DEVICES, raised }).toEqual({ matched: total, raised: DEVICES })
    type Page = { messages: { position: string; payload: { client: string; n: number } }[] }
    /** By position: what is delivered again is the same message. */
    const published = new Map<string, string>()
    await until(
      async () => {
        const page = await read<Page>('consumers/found/messages?limit=1000&wait=1s')
        for (const { position, payload } of page?.messages ?? [])
          published.set(position, `${payload.client} ${payload.n}`)
        return published.size >= total && page?.messages.length === 0
      },
      () => `each change is published: ${published.size} of ${total}`,
      DEADLINE_MS,
    )
    const wanted = clients.flatMap(({ id }) => Array.from({ length: sent }, (_, index) => `${id} ${index + 1}`))
    expect([...published.values()].toSorted()).toEqual(wanted.toSorted())
  },
)
