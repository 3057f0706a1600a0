/** What the tests of named consumers share: a domain, its devices, and short calls of one consumer. */
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { Caller, TestResponse } from '../harness/api.ts'
import { until } from '../harness/until.ts'
import type { Device, Plant } from './support.ts'

export type Taken = {
  position: string
  attempts: number
  channel: string
  subtopic: string
  publisher: string
  protocol: string
  created: number
  content_type: string
  payload: unknown
}

export type ConsumerBody = {
  id: string
  name: string
  channels: string[]
  filter: Record<string, string>
  order: string
  position: string
  behind_since?: string
  lag_seconds: number
  in_flight: number
  held: number
  dead_letters: number
  expired: number
  last_error?: { at: string; reason: string }
}

export type TestConsumer = {
  name: string
  path: string
  show(): Promise<ConsumerBody>
  pull(limit?: number, wait?: string): Promise<Taken[]>
  ack(...taken: readonly Taken[]): Promise<TestResponse>
  nack(taken: readonly Taken[], more?: Record<string, unknown>): Promise<TestResponse>
  post(path: string, body: unknown): Promise<TestResponse>
}

export function expectStatus(status: number, response: TestResponse): TestResponse {
  if (response.status !== status) throw new Error(`expected ${status}, got ${response.status}: ${response.text}`)
  return response
}

/** The consumer through this caller. */
export function consumerOf(call: Caller, domainId: string, name: string): TestConsumer {
  const path = `/${domainId}/consumers/${name}`
  return {
    name,
    path,
    show: async () => expectStatus(200, await call('GET', path)).json<ConsumerBody>(),
    pull: async (limit = 100, wait = '0s') =>
      expectStatus(200, await call('GET', `${path}/messages?limit=${limit}&wait=${wait}`)).json<{ messages: Taken[] }>()
        .messages,
    ack: (...taken) => call('POST', `${path}/ack`, { positions: taken.map(({ position }) => position) }),
    nack: (taken, more = {}) =>
      call('POST', `${path}/nack`, { positions: taken.map(({ position }) => position), ...more }),
    post: (below, body) => call('POST', `${path}/${below}`, body),
  }
}

/** A new consumer of the channel, from its earliest message. */
export async function newConsumer(
  plant: Plant,
  channels: readonly string[],
  fields: Record<string, unknown> = {},
): Promise<TestConsumer> {
  const name = `consumer-${newId()}`
  const body = { name, channels, from: 'earliest', ...fields }
  expectStatus(201, await plant.owner.call('POST', `/${plant.domainId}/consumers`, body))
  return consumerOf(plant.owner.call, plant.domainId, name)
}

/** Publishes a JSON object, which is delivered as it was sent. */
export async function send(
  plant: Plant,
  device: Device,
  channelId: string,
  content: Record<string, unknown>,
  subtopic = '',
): Promise<void> {
  const { api, domainId } = plant
  const url = `/http/m/${domainId}/c/${channelId}${subtopic === '' ? '' : `/${subtopic}`}`
  const headers = { 'content-type': 'application/json' }
  expectStatus(202, await api.as(`Client ${device.secret}`)('POST', url, JSON.stringify(content), headers))
  await untilSettled(plant)
}

/** Consumers get messages in their final order: not while an older transaction runs, which may still write some. */
export async function untilSettled({ api }: Plant): Promise<void> {
  await until(async () => {
    const { rows } = await sql<{ is_settled: boolean }>`SELECT coalesce(
      (SELECT xid < position_xmin() FROM ingest_batches ORDER BY ingest_batches.xid DESC LIMIT 1), true) AS is_settled`.execute(
      api.database.db,
    )
    return rows[0]?.is_settled
  }, 'the order of all messages is final')
}

export const values = (taken: readonly Taken[]) => taken.map(({ payload }) => (payload as { value: number }).value)
