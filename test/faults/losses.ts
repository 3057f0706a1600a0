/** What the loss tests share: writers on every protocol that continue while something is killed, and what must be stored afterwards. */
import { expect } from 'vitest'
import type { Whole } from '../harness/whole.ts'
import type { Kind, Node, Target } from './loss-writers.ts'
import { KINDS } from './loss-writers.ts'

const WRITERS_PER_KIND = 3
/** Between two values of a writer: the test is about blows, not about load. */
const PAUSE_MS = 8
const AFTER_FAILURE_MS = 100
const PAGE = 1000

type Call = Whole['call']

export type Running = { kind: Kind; target: Target; acknowledged: number[] }

/** Writes until it is stopped. */
async function writeOn(
  { kind, target, acknowledged }: Running,
  first: number,
  nodes: readonly Node[],
  { isOver, pauseMs }: { isOver: () => boolean; pauseMs: number },
) {
  let turn = first
  using writer = kind.open(target, () => nodes[turn++ % nodes.length] as Node)
  for (let value = first; !isOver(); value += WRITERS_PER_KIND) {
    for (;;) {
      const isAcknowledged = await writer.write(value).then(
        () => true,
        () => false,
      )
      if (isAcknowledged) acknowledged.push(value)
      await new Promise((resolve) => setTimeout(resolve, isAcknowledged ? pauseMs : AFTER_FAILURE_MS))
      if (isAcknowledged || !kind.isKeyed || isOver()) break
    }
  }
}

/** Everything in the channel, and what the reader says that it comes to. */
export async function stored(call: Call, { path, secret }: Target): Promise<{ values: number[]; total: number }> {
  const values: number[] = []
  for (;;) {
    const page = await call('GET', `${path}?limit=${PAGE}&offset=${values.length}&dir=asc`, {
      authorization: `Client ${secret}`,
    })
    expect(page.status, page.text).toBe(200)
    const { messages, total } = page.json<{ messages: { value: number }[]; total: number }>()
    values.push(...messages.map(({ value }) => value))
    if (messages.length < PAGE) return { values, total }
  }
}

export type Domain = {
  readonly id: string
  /** Of the administrator who created it. */
  readonly authorization: string
  create<T>(path: string, body: unknown): Promise<T>
}

/** A client and a channel for each kind of writer. */
export async function setUp(call: Call): Promise<Running[]> {
  return await setUpWriters(await setUpDomain(call))
}

export async function setUpDomain(call: Call, secret = 'the-first-admin'): Promise<Domain> {
  const login = await call('POST', '/users/tokens/issue', { body: { identity: 'admin', secret } })
  const authorization = `Bearer ${login.json<{ access_token: string }>().access_token}`
  const create = async <T>(path: string, body: unknown): Promise<T> => {
    const answer = await call('POST', path, { body, authorization })
    expect(answer.status, answer.text).toBe(201)
    return answer.text === '' ? (undefined as T) : answer.json<T>()
  }
  const { id } = await create<{ id: string }>('/domains', { name: 'loss' })
  return { id, authorization, create }
}

export async function setUpWriters({ id: domainId, create }: Domain): Promise<Running[]> {
  return await Promise.all(
    KINDS.map(async (kind) => {
      const client = await create<{ id: string; credentials: { secret: string } }>(`/${domainId}/clients`, {
        name: kind.name,
      })
      const channel = await create<{ id: string }>(`/${domainId}/channels`, { name: kind.name })
      await create(`/${domainId}/channels/connect`, {
        client_ids: [client.id],
        channel_ids: [channel.id],
        types: ['publish', 'subscribe'],
      })
      const target = {
        path: `/m/${domainId}/c/${channel.id}`,
        clientId: client.id,
        secret: client.credentials.secret,
      }
      return { kind, target, acknowledged: [] }
    }),
  )
}

/** Starts the writers of every kind. They continue until `isOver`; the promise resolves when the last one has ended. */
export async function writeAll(
  running: readonly Running[],
  nodes: readonly Node[],
  isOver: () => boolean,
  pauseMs = PAUSE_MS,
): Promise<void> {
  await Promise.all(
    running.flatMap((one) =>
      Array.from({ length: WRITERS_PER_KIND }, (_, index) => writeOn(one, index, nodes, { isOver, pauseMs })),
    ),
  )
}

/** What a channel holds, compared with what its writers know: `faults` says in sentences what is wrong. */
export async function compareStored(
  { kind, target, acknowledged }: Running,
  call: Call,
): Promise<{ lost: number[]; repeated: number[]; faults: string[] }> {
  const { values, total } = await stored(call, target)
  const known = new Set(values)
  const lost = acknowledged.filter((value) => !known.has(value))
  const repeated = kind.isKeyed ? repeatedIn(values) : []
  const faults: string[] = []
  if (lost.length > 0) faults.push(`${kind.name}: acknowledged but not stored: ${lost.join(', ')}`)
  if (repeated.length > 0) faults.push(`${kind.name}: stored twice: ${repeated.join(', ')}`)
  if (total !== values.length)
    faults.push(`${kind.name}: the total is ${total}, but there are ${values.length} messages`)
  return { lost, repeated, faults }
}

/** Values that are there more than once. */
export function repeatedIn(values: readonly number[]): number[] {
  const seen = new Set<number>()
  return values.filter((value) => seen.has(value) || !seen.add(value))
}

/** Everything that was acknowledged is stored, what was sent with a key is stored once, and the total is what is there. */
export async function expectStored(running: Running, call: Call, mark: string): Promise<void> {
  const { faults } = await compareStored(running, call)
  expect(faults, mark).toEqual([])
}
