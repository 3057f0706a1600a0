/**
 * Kills processes and PostgreSQL while rules tick each second: each scheduled time is evaluated once for each series, so that nothing is published twice,
 * and what the rules counted was published. SKEIN_TEST_KILLS sets the number of kills.
 */
import { afterEach, beforeEach, expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { strike } from '../harness/strikes.ts'
import { createInstallation, startWhole } from '../harness/whole.ts'
import type { Installation, Whole } from '../harness/whole.ts'

const KILLS = Number(process.env['SKEIN_TEST_KILLS'] ?? 2)
/** More than a page of series with windows. */
const SERIES = 25
/** Times that are evaluated between two kills. */
const TICKS = 1
const DEADLINE_MS = 120_000

let installation: Installation
beforeEach(async () => {
  installation = await createInstallation()
})
afterEach(() => installation[Symbol.dispose]())

type RuleView = { seen: number; acted: number; next_tick_at?: string; paused?: unknown }
type Setup = { authorization: string; domainId: string; plain: string; report: string }

async function setUp(whole: Whole): Promise<Setup> {
  const json = async <T>(path: string, body: unknown, authorization?: string): Promise<T> => {
    const answer = await whole.call('POST', path, { body, ...(authorization === undefined ? {} : { authorization }) })
    expect(answer.status, answer.text).toBeLessThan(300)
    return answer.json<T>()
  }
  const login = { identity: 'admin', secret: 'the-first-admin' }
  const authorization = `Bearer ${(await json<{ access_token: string }>('/users/tokens/issue', login)).access_token}`
  const made = async (path: string, body: unknown) => (await json<{ id: string }>(path, body, authorization)).id
  const domainId = await made('/domains', { name: 'times' })
  const [values, published] = [
    await made(`/${domainId}/channels`, { name: 'values' }),
    await made(`/${domainId}/channels`, { name: 'published' }),
  ]
  const client = await json<{ id: string; credentials: { secret: string } }>(`/${domainId}/clients`, {}, authorization)
  const connection = { client_ids: [client.id], channel_ids: [values] }
  expect((await whole.call('POST', `/${domainId}/channels/connect`, { body: connection, authorization })).status).toBe(
    201,
  )
  const names = Array.from({ length: SERIES }, (_, index) => `n${index}`)
  const sent = await whole.call('POST', `/http/m/${domainId}/c/${values}`, {
    body: names.map((n, v) => ({ n, v })),
    authorization: `Client ${client.credentials.secret}`,
    headers: { 'content-type': 'application/senml+json' },
  })
  expect(sent.status, sent.text).toBe(202)
  const action = { type: 'publish', channel: published }
  const each = { type: 'schedule', schedule: '* * * * * *', catch_up: 'once' }
  const plain = await made(`/${domainId}/rules`, {
    name: 'plain',
    source: each,
    actions: [{ ...action, payload: '{"of": "plain", "at": "{{ time }}"}' }],
  })
  const report = await made(`/${domainId}/rules`, {
    name: 'report',
    source: { ...each, names },
    actions: [{ ...action, payload: `{"of": "{{ name }}", "at": "{{ time }}", "mean": "{{ mean('24h') }}"}` }],
  })
  await json(
    `/${domainId}/consumers`,
    { name: 'found', channels: [published], max_in_flight: 10_000, ack_wait: '1h', order: 'none', from: 'earliest' },
    authorization,
  )
  return { authorization, domainId, plain, report }
}

test(
  'each scheduled time is evaluated once for each series, also when processes are killed',
  { timeout: DEADLINE_MS + KILLS * 60_000 },
  async () => {
    let whole = await startWhole(installation)
    await using stack = new AsyncDisposableStack()
    stack.defer(async () => await whole[Symbol.asyncDispose]())
    const { authorization, domainId, plain, report } = await setUp(whole)
    const read = async <T>(path: string): Promise<T | undefined> => {
      const answer = await whole.call('GET', `/${domainId}/${path}`, { authorization }).catch(() => undefined)
      return answer?.status === 200 ? answer.json<T>() : undefined
    }
    const seenOf = async (rule: string) => (await read<RuleView>(`rules/${rule}`))?.seen ?? 0
    const untilTicked = async () => {
      const [ofPlain, ofReport] = [await seenOf(plain), await seenOf(report)]
      await until(
        async () => (await seenOf(plain)) >= ofPlain + TICKS && (await seenOf(report)) >= ofReport + SERIES * TICKS,
        'the rules go on',
        DEADLINE_MS,
      )
    }
    for (let turn = 0; turn < KILLS; turn++) {
      await untilTicked()
      whole = await strike(installation, whole, turn)
    }
    await untilTicked()
    for (const rule of [plain, report])
      await until(
        async () =>
          (await whole.call('POST', `/${domainId}/rules/${rule}/disable`, { authorization }).catch(() => undefined))
            ?.status === 200,
        'the rule is disabled',
        DEADLINE_MS,
      )
    const counts = async () => [await read<RuleView>(`rules/${plain}`), await read<RuleView>(`rules/${report}`)]
    const [ofPlain, ofReport] = (await counts()) as [RuleView, RuleView]
    expect([ofPlain.acted, ofReport.acted]).toEqual([ofPlain.seen, ofReport.seen])
    type Page = { messages: { position: string; payload: { of: string; at: string } }[] }
    /** By position: what is delivered again is the same message. */
    const published = new Map<string, string>()
    const total = ofPlain.acted + ofReport.acted
    await until(
      async () => {
        const page = await read<Page>('consumers/found/messages?limit=1000&wait=1s')
        for (const { position, payload } of page?.messages ?? []) published.set(position, `${payload.of} ${payload.at}`)
        return published.size >= total && page?.messages.length === 0
      },
      () => `all is published: ${published.size} of ${total}`,
      DEADLINE_MS,
    )
    expect(published.size).toBe(total)
    expect(new Set(published.values()).size).toBe(total)
    expect([...published.values()].filter((one) => one.startsWith('plain ')).length).toBe(ofPlain.acted)
  },
)
