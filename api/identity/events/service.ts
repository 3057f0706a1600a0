/**
 * The events of a domain as server-sent events: from a position on, without a gap, as far as the caller may read what they
 * are about. `Last-Event-ID` is the position.
 */
import type { Database } from '#core/database/index.ts'
import { kindOf } from '#core/errors/index.ts'
import { comparePositions, formatPosition, parsePosition, settledEnd } from '#core/changelog/index.ts'
import type { Position } from '#core/changelog/index.ts'
import type { StreamBudget, StreamOwner } from '#core/streams/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { withDeadline } from '#core/time.ts'
import type { AccessPolicy, DomainAccess, Origin, UserPrincipal } from '../access/index.ts'
import { narrowIds, sightOf } from '../journal/index.ts'
import type { EventRecord } from './event.ts'
import { serverSentEvent, wholeEvent } from './event.ts'
import type { EventFanOut } from './fan-out.ts'
import { findRemovedPosition, readDomainEvents } from './repository.ts'
import { Subscriber } from './subscriber.ts'
import type { SubscriberEnd } from './subscriber.ts'

export type EventCaller = {
  principal: UserPrincipal
  /** The token that he called with, and from where: looked at again for as long as the stream is open. */
  token: string
  origin: Origin
}

/** What events are written to. */
export type EventWriter = {
  /** A whole event. */
  write(event: string | Buffer): void
  send(event: { event: string; data: unknown }): void
  end(reason: SubscriberEnd | 'behind'): void
  /** Resolves when what was written is on its way. */
  drained(): Promise<void>
}

/** What is followed once there is a stream to write it to. */
export type EventSource = {
  owner: StreamOwner
  /** See `EventStreamOptions`. */
  keptBytes(): number
  /** What a stream says after a time without an event. */
  quiet(): string
  /** Writes to the stream until it ends. Throws `unavailable`, `timeout`. */
  begin(stream: EventWriter): Promise<{ close(): void }>
}

export type EventsService = {
  /** The events of a domain, after `lastEventId` or from now on. Throws `malformed`, `forbidden`. */
  open(caller: EventCaller, domainId: string, lastEventId: string | undefined): Promise<EventSource>
}

/** Events of the past are read in pages of so many. */
const PAGE_RECORDS = 200
/** The journal must be readable by then, or the stream is not opened. */
const OPEN_DEADLINE_MS = 5000

export type EventsDeps = {
  database: Database
  access: AccessPolicy
  authenticate: (token: string, origin: Origin) => Promise<UserPrincipal>
  fanOut: EventFanOut
  budget: StreamBudget
  logger: Logger
}

export function createEventsService(deps: EventsDeps): EventsService {
  const { database, access, authenticate, fanOut, budget, logger } = deps
  const { db } = database

  async function enter(principal: UserPrincipal, domainId: string): Promise<DomainAccess> {
    const domain = await access.enter(principal, domainId)
    domain.require('read')
    return domain
  }

  /** The event as this caller may see it, with the position behind it; undefined when the caller may not see it. */
  async function present(domain: DomainAccess, record: EventRecord): Promise<string | Buffer | undefined> {
    const sight = await sightOf(db, domain, record)
    if (sight === 'none') return undefined
    return sight === 'all' ? wholeEvent(record) : serverSentEvent(record, narrowIds(record.attributes, sight.ids))
  }

  return {
    async open({ principal, token, origin }, domainId, lastEventId) {
      const after = lastEventId === undefined || lastEventId === '' ? undefined : parsePosition(lastEventId)
      const { domainKey, domainId: id } = await enter(principal, domainId)
      const authorize = async () => await enter(await authenticate(token, origin), domainId)
      /** Everything up to where the fan-out stands was written. */
      const state = { isCaughtUp: false }
      let subscriber: Subscriber | undefined
      return {
        owner: { user: principal.key, domain: id },
        keptBytes: () => subscriber?.keptBytes ?? 0,
        quiet() {
          const position = state.isCaughtUp ? fanOut.currentPosition() : undefined
          // The position moves on with events that are none of the caller's business.
          return position === undefined ? ': quiet\n\n' : `: quiet\nid: ${formatPosition(position)}\n\n`
        },
        async begin(stream) {
          const following = new Subscriber({
            domainKey,
            authorize: async () => void (await authorize()),
            onEnd: (reason) => stream.end(reason),
            keep: budget.keep,
          })
          subscriber = following
          fanOut.join(following)
          const close = () => {
            following.end('closed')
            fanOut.leave(following)
          }
          try {
            const begin = await findBegin(after)
            write(following, stream, authorize, { ...begin, state }).catch((error: unknown) => {
              logger.warn({ err: error }, 'failed to read events for a stream; ending it')
              stream.end('behind')
            })
            return { close }
          } catch (error) {
            close()
            throw error
          }
        },
      }
    },
  }

  async function findBegin(after: Position | undefined): Promise<{ begin: Position; hasGap: boolean }> {
    const [end, removed] = await withDeadline(
      Promise.all([settledEnd(db), findRemovedPosition(db), fanOut.position()]),
      OPEN_DEADLINE_MS,
      'reading the journal',
    )
    // A position ahead of everything is of another database, or of this one before it was restored.
    const isAhead = after !== undefined && comparePositions(after, end) > 0
    const isOld = after !== undefined && removed !== undefined && comparePositions(after, removed) < 0
    return { begin: after === undefined || isAhead ? end : after, hasGap: isAhead || isOld }
  }

  /** At the pace of the reader: what comes meanwhile waits with the subscriber, which is bounded. */
  async function writeRecords(
    stream: EventWriter,
    subscriber: Subscriber,
    domain: DomainAccess,
    records: readonly EventRecord[],
  ): Promise<void> {
    for (const record of records) {
      if (subscriber.ended !== undefined) return
      const event = await present(domain, record)
      if (event === undefined) continue
      stream.write(event)
      await stream.drained()
    }
  }

  async function write(
    subscriber: Subscriber,
    stream: EventWriter,
    authorize: () => Promise<DomainAccess>,
    { begin, hasGap, state }: { begin: Position; hasGap: boolean; state: { isCaughtUp: boolean } },
  ): Promise<void> {
    try {
      // An id without data is remembered by the client: it can go on from here before the first event.
      stream.write(`id: ${formatPosition(begin)}\n\n`)
      if (hasGap)
        stream.send({
          event: 'gap',
          data: { message: 'events are missing before this one: read the state anew, then go on from here' },
        })
      let position = begin
      while (subscriber.ended === undefined) {
        const target = await fanOut.position()
        if (comparePositions(position, target) >= 0) {
          subscriber.after = position
          if (fanOut.attach(subscriber, target)) break
          continue
        }
        const records = await readDomainEvents(db, subscriber.domainKey, {
          after: position,
          until: target,
          limit: PAGE_RECORDS,
        })
        await writeRecords(stream, subscriber, await authorize(), records)
        position = records.length < PAGE_RECORDS ? target : (records.at(-1)?.position ?? target)
      }
      for (;;) {
        state.isCaughtUp = true
        const turn = await subscriber.next()
        state.isCaughtUp = false
        if ('ended' in turn) return
        await writeRecords(stream, subscriber, await authorize(), turn.records)
      }
    } catch (error) {
      const reason = endReasonOf(error)
      if (reason === undefined) throw error
      subscriber.end(reason)
    }
  }
}

function endReasonOf(error: unknown): SubscriberEnd | undefined {
  const kind = kindOf(error)
  return kind === 'unauthenticated' || kind === 'forbidden' ? kind : undefined
}
