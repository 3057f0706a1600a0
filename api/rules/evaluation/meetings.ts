/** The messages that rules read, and which rules each of their records meets. */
import { comparePlaces } from '#api/consumers/index.ts'
import type { Place } from '#api/consumers/index.ts'
import { readForward } from '#api/messages/index.ts'
import type { LiveMessage } from '#api/messages/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { createTurns } from '#core/turns.ts'
import type { CompiledRule } from '../compile.ts'
import { RuleClient } from '../engine/index.ts'
import type { RuleIndex } from '../engine/index.ts'
import { findGroupsAbove, listClients, listClientsById } from './repository.ts'
import type { ChannelRow, StateRow } from './repository.ts'
import { NO_CLIENT, samplesOf } from './samples.ts'
import type { Sample } from './samples.ts'

/** Messages and payloads that one step takes; the last message may exceed the latter. */
const MAX_TAKEN = { messages: 500, bytes: 1024 * 1024 } as const

export type Read = {
  messages: LiveMessage[]
  place: Place
  /** Nothing follows that is settled, up to the end that was given. */
  isEnd: boolean
  /** Arrival of the next message, if one was left. */
  leftSeconds: number | null
  passed: number
}

export async function readMessages(
  tx: Transaction,
  {
    place,
    channels,
    index,
    until,
    toSeconds = Infinity,
  }: {
    place: Place
    channels: ReadonlyMap<number, ChannelRow>
    index: RuleIndex<CompiledRule>
    until: Place | undefined
    /** Messages that arrived at this time or later are left. */
    toSeconds?: number
  },
): Promise<Read> {
  const messages: LiveMessage[] = []
  let bytes = 0
  let [isBeyond, isAfter] = [false, false]
  const step = await readForward(tx, {
    place,
    channels: new Map([...channels].map(([key, { id }]) => [key, id])),
    firstMessages: MAX_TAKEN.messages + 1,
    judge(message) {
      const at = { xid: message.xid ?? 0n, seq: message.batchSeq, message: message.index }
      if (until !== undefined && comparePlaces(at, until) >= 0) {
        isBeyond = true
        return 'left'
      }
      if (message.receivedAtSeconds >= toSeconds) {
        isAfter = true
        return 'left'
      }
      // An empty message that cleared a retained one has no content.
      if (message.envelope?.clears !== undefined || !index.watches(message.channelId)) return 'done'
      if (messages.length >= MAX_TAKEN.messages || bytes > MAX_TAKEN.bytes) return 'left'
      messages.push(message)
      bytes += message.payload.length
      return 'done'
    },
  })
  const isPast = until !== undefined && (isBeyond || comparePlaces(step.place, until) >= 0)
  return {
    messages,
    place: isPast ? until : step.place,
    isEnd: isPast || isAfter || step.isEnd,
    leftSeconds: isPast ? null : (step.left?.receivedAtSeconds ?? null),
    passed: step.passed,
  }
}

/** A message that cannot be read is passed over: it was accepted as what its content type says. */
export function safeSamples(message: LiveMessage, client: RuleClient): Sample[] {
  try {
    return samplesOf(message, client)
  } catch {
    return []
  }
}

type Clients = {
  ofMessage(message: LiveMessage): { client: RuleClient; groups: readonly string[] }
  byId(id: string): RuleClient | undefined
}

export async function clientsOf(
  tx: Transaction,
  domainKey: number,
  rules: readonly CompiledRule[],
  { messages, due }: { messages: readonly LiveMessage[]; due: readonly StateRow[] },
): Promise<Clients> {
  const keys = new Set(messages.flatMap(({ publisherKey }) => publisherKey ?? []))
  const ids = new Set(due.flatMap(({ series }) => (series.publisherId === '' ? [] : [series.publisherId])))
  const groupIds = [...new Set(rules.flatMap(({ filter }) => filter.groups ?? []))]
  const rows = [...(await listClients(tx, [...keys])), ...(await listClientsById(tx, domainKey, [...ids]))]
  const above = await findGroupsAbove(tx, domainKey, groupIds)
  const byKey = new Map<number, { client: RuleClient; groups: readonly string[] }>()
  const byId = new Map<string, RuleClient>()
  for (const { key, id, name, tags, metadata, parentGroupKey } of rows) {
    const client = new RuleClient(id, name, tags, metadata)
    byKey.set(key, { client, groups: parentGroupKey === null ? [] : (above.get(parentGroupKey) ?? []) })
    byId.set(id, client)
  }
  const unknown = (id: string) => ({ client: id === '' ? NO_CLIENT : new RuleClient(id, '', [], {}), groups: [] })
  return {
    ofMessage: ({ publisherKey, publisherId }) =>
      (publisherKey === null ? undefined : byKey.get(publisherKey)) ?? unknown(publisherId),
    byId: (id) => byId.get(id),
  }
}

export type Meeting = { sample: Sample; rules: readonly CompiledRule[] }

/** Evaluations that one step does; the last message may exceed them. A sample that meets no rule counts as one. */
const MAX_MEETINGS = 20_000
/** Evaluations of one message. */
const MAX_MEETINGS_OF_MESSAGE = 500_000
/** Samples between two looks at the clock. */
const SAMPLES_PER_LOOK = 32

export type Meetings = {
  meetings: Meeting[]
  /** The first message that is left for the next step. */
  left: LiveMessage | undefined
  /** Samples that are not evaluated, because their message has too many for the rules that it meets. */
  dropped: ReadonlyMap<CompiledRule, number>
}

/** The samples of the messages, in order, and the rules that each meets; of as many messages as one step can evaluate, at least of the first. */
export async function meetingsOf(
  messages: readonly LiveMessage[],
  index: RuleIndex<CompiledRule>,
  clients: Clients,
): Promise<Meetings> {
  const turns = createTurns()
  const meetings: Meeting[] = []
  const dropped = new Map<CompiledRule, number>()
  let count = 0
  for (const [number, message] of messages.entries()) {
    if (number > 0 && count >= MAX_MEETINGS) return { meetings, left: message, dropped }
    const { client, groups } = clients.ofMessage(message)
    const samples = safeSamples(message, client)
    let ofMessage = 0
    for (const [place, sample] of samples.entries()) {
      if (place % SAMPLES_PER_LOOK === 0 && turns.isOver) await turns.next()
      const rules = index
        .match({
          channel: message.channelId,
          subtopic: message.subtopic,
          name: sample.record?.n,
          client: message.publisherId,
          groups,
          tags: client.tags,
        })
        .filter((rule) => comparePlaces(rule.place, sample.place) <= 0)
      ofMessage += rules.length
      if (ofMessage <= MAX_MEETINGS_OF_MESSAGE) meetings.push({ sample, rules })
      else for (const rule of rules) dropped.set(rule, (dropped.get(rule) ?? 0) + 1)
    }
    count += Math.max(ofMessage, samples.length)
  }
  return { meetings, left: undefined, dropped }
}

/** Why samples were not evaluated. */
export const reasonOfDropped = (count: number): string =>
  `${count} records of one message were not evaluated: a message has at most ${MAX_MEETINGS_OF_MESSAGE} evaluations by all rules that it meets`
