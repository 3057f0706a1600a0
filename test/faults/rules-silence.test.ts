/**
 * Kills processes and PostgreSQL while clients fall silent: each silence raises one alarm, and so does each outage, and a message clears it once.
 * SKEIN_TEST_KILLS sets the number of kills.
 */
import { afterEach, beforeEach, expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { strike } from '../harness/strikes.ts'
import { createInstallation, startWhole } from '../harness/whole.ts'
import type { Installation, Whole } from '../harness/whole.ts'

const KILLS = Number(process.env['SKEIN_TEST_KILLS'] ?? 4)
const SILENT = 5
const TALKING = 2
/** Kills come before, while and after the clients are found. */
const KILLED_AFTER_MS = [5_500, 6_200, 2_000, 7_000] as const
const DEADLINE_MS = 120_000

let installation: Installation
beforeEach(async () => {
  installation = await createInstallation()
})
afterEach(() => installation[Symbol.dispose]())

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

type Client = { id: string; secret: string }
type Setup = { token: string; domainId: string; channelId: string; clients: Client[]; apart: string; together: string }

async function setUp(whole: Whole): Promise<Setup> {
  const json = async <T>(path: string, body: unknown, authorization?: string): Promise<T> => {
    const answer = await whole.call('POST', path, { body, ...(authorization === undefined ? {} : { authorization }) })
    expect(answer.status, answer.text).toBeLessThan(300)
    return answer.text === '' ? (undefined as T) : answer.json<T>()
  }
  const login = { identity: 'admin', secret: 'the-first-admin' }
  const token = `Bearer ${(await json<{ access_token: string }>('/users/tokens/issue', login)).access_token}`
  const made = async (path: string, body: unknown) => (await json<{ id: string }>(path, body, token)).id
  const domainId = await made('/domains', { name: 'silence' })
  const channelId = await made(`/${domainId}/channels`, { name: 'values' })
  const clients: Client[] = []
  for (let count = 0; count < SILENT + TALKING; count++) {
    const client = await json<{ id: string; credentials: { secret: string } }>(`/${domainId}/clients`, {}, token)
    await json(`/${domainId}/channels/connect`, { client_ids: [client.id], channel_ids: [channelId] }, token)
    clients.push({ id: client.id, secret: client.credentials.secret })
  }
  const source = { type: 'silence', channels: [channelId], after: '5s' }
  const apart = await made(`/${domainId}/rules`, { name: 'each by itself', source: { ...source, share: 1 } })
  const together = await made(`/${domainId}/rules`, { name: 'all at once', source })
  return { token, domainId, channelId, clients, apart, together }
}

test(
  'each silence raises one alarm, and one for all clients, whatever is killed',
  { timeout: DEADLINE_MS + KILLS * 60_000 },
  async () => {
    let whole = await startWhole(installation)
    await using stack = new AsyncDisposableStack()
    stack.defer(async () => await whole[Symbol.asyncDispose]())
    const { token: authorization, domainId, channelId, clients, apart, together } = await setUp(whole)
    const send = async ({ secret }: Client): Promise<void> => {
      for (;;) {
        const message = { body: [{ n: 'beat', v: 1 }], authorization: `Client ${secret}` }
        const answer = await whole.call('POST', `/http/m/${domainId}/c/${channelId}`, message).catch(() => undefined)
        if (answer?.status === 202) return
        await pause(20)
      }
    }
    let isOver = false
    const talk = async (client: Client): Promise<void> => {
      for (; !isOver; await pause(500)) await send(client)
    }
    const talking = clients.slice(SILENT).map(talk)
    stack.defer(async () => {
      isOver = true
      await Promise.all(talking)
    })
    const count = async (rule: string, status: string): Promise<number | undefined> => {
      const path = `/${domainId}/alarms?rule=${rule}&status=${status}&limit=1`
      const answer = await whole.call('GET', path, { authorization }).catch(() => undefined)
      return answer?.status === 200 ? answer.json<{ total: number }>().total : undefined
    }
    for (let turn = 0; turn < KILLS; turn++) {
      await pause(KILLED_AFTER_MS[turn % KILLED_AFTER_MS.length] ?? 0)
      whole = await strike(installation, whole, turn)
      await until(
        async () => (await count(apart, 'open')) === SILENT && (await count(together, 'open')) === 1,
        'the silent clients have their alarms',
        DEADLINE_MS,
      )
      // Also when they are looked at again, and by another process.
      if (turn % 3 === 0) whole = await strike(installation, whole, 0)
      await pause(2_000)
      for (const client of clients.slice(0, SILENT)) await send(client)
      await until(
        async () => (await count(apart, 'open')) === 0 && (await count(together, 'open')) === 0,
        'their messages clear the alarms',
        DEADLINE_MS,
      )
      expect(await count(apart, 'cleared')).toBe((turn + 1) * SILENT)
      expect(await count(together, 'cleared')).toBe(turn + 1)
    }
  },
)
