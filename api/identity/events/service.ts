/**
 * The events of a domain as server-sent events: from a position on, without a gap, as far as the caller may read what they
 * are about. `Last-Event-ID` is the position.
 */
import type { Database } from '#core/database/index.ts'
import { kindOf } from '#core/errors/index.ts'
import { comparePositions, formatPosition, parsePosition, settledEnd } from '#core/log/index.ts'
import type { Position } from '#core/log/index.ts'
import { withDeadline } from '#core/time.ts'
import type { AccessPolicy, DomainAccess, Origin, UserPrincipal } from '../access/index.ts'
import { narrowIds, sightOf } from '../journal/index.ts'
import type { EventRecord } from './event.ts'
import { eventFields, formatEvent } from './event.ts'
import type { EventHub } from './hub.ts'
import { findRemovedPosition, readDomainEvents } from './repository.ts'
import { END_MESSAGES, GRACE_MS, Subscriber } from './subscriber.ts'
import type { EndReason } from './subscriber.ts'

export type EventCaller = {
  principal: UserPrincipal
  /** The token that he called with, and from where: looked at again for as long as the stream is open. */
  token: string
  origin: Origin
}

export type EventStream = {
  /** Text of `text/event-stream`; is read at the pace of the reader. */
  chunks: AsyncGenerator<string, void, void>
  /** The reader is gone. */
  close(): void
}

export type EventsService = {
  /**
   * Opens the stream of a domain's events, after `lastEventId` or from now on. `onCut` is called when a reader that takes
   * nothing must be cut off. Throws `malformed`, `forbidden`, `rate_limited`, `unavailable`.
   */
  open(caller: EventCaller, domainId: string, lastEventId: string | undefined, onCut: () => void): Promise<EventStream>
}

/** Events of the past are read in pages of so many. */
const PAGE_RECORDS = 200
/** A comment is sent after so long without an event: proxies close connections that say nothing. */
const HEARTBEAT_MS = 15_000
/** What a client waits before it connects again. */
const RETRY_MS = 2000
/** The journal must be readable by then, or the stream is not opened. */
const OPEN_DEADLINE_MS = 5000

export type EventsDeps = {
  database: Database
  access: AccessPolicy
  authenticate: (token: string, origin: Origin) => Promise<UserPrincipal>
  hub: EventHub
  heartbeatMs?: number
}

export function createEventsService(deps: EventsDeps): EventsService {
  const { database, access, authenticate, hub, heartbeatMs = HEARTBEAT_MS } = deps
  const { db } = database

  async function enter(principal: UserPrincipal, domainId: string): Promise<DomainAccess> {
    const domain = await access.enter(principal, domainId)
    domain.require('read')
    return domain
  }

  /** The event as this caller may see it, with the position behind it; empty when he may not see it. */
  async function present(domain: DomainAccess, record: EventRecord): Promise<string> {
    const sight = await sightOf(db, domain, record)
    if (sight === 'none') return ''
    const attributes = sight === 'all' ? record.attributes : narrowIds(record.attributes, sight.ids)
    const fields = formatEvent(eventFields(record, attributes))
    return `id: ${formatPosition(record.position)}\nevent: ${record.operation}\ndata: ${fields}\n\n`
  }

  return {
    async open({ principal, token, origin }, domainId, lastEventId, onCut) {
      const after = lastEventId === undefined || lastEventId === '' ? undefined : parsePosition(lastEventId)
      const { domainKey } = await enter(principal, domainId)
      const authorize = async () => await enter(await authenticate(token, origin), domainId)
      let cutting: NodeJS.Timeout | undefined
      const subscriber = new Subscriber({
        domainKey,
        userKey: principal.key,
        authorize: async () => void (await authorize()),
        onEnd: (reason) => {
          cutting = setTimeout(onCut, GRACE_MS[reason])
        },
      })
      const finish = () => {
        clearTimeout(cutting)
        hub.leave(subscriber)
      }
      hub.join(subscriber)
      try {
        const [end, removed] = await withDeadline(
          Promise.all([settledEnd(db), findRemovedPosition(db), hub.position()]),
          OPEN_DEADLINE_MS,
          'reading the journal',
        )
        // A position ahead of everything is of another database, or of this one before it was restored.
        const isAhead = after !== undefined && comparePositions(after, end) > 0
        const isOld = after !== undefined && removed !== undefined && comparePositions(after, removed) < 0
        const begin = after === undefined || isAhead ? end : after
        const chunks = stream(subscriber, authorize, { begin, hasGap: isAhead || isOld }, finish)
        return {
          chunks,
          close() {
            subscriber.end('closed')
            finish()
          },
        }
      } catch (error) {
        finish()
        throw error
      }
    },
  }

  async function* stream(
    subscriber: Subscriber,
    authorize: () => Promise<DomainAccess>,
    { begin, hasGap }: { begin: Position; hasGap: boolean },
    finish: () => void,
  ): AsyncGenerator<string, void, void> {
    try {
      // An id without data is remembered by the client: it can go on from here before the first event.
      yield `retry: ${RETRY_MS}\nid: ${formatPosition(begin)}\n\n`
      if (hasGap)
        yield control('gap', {
          message: 'events are missing before this one: read the state anew, then go on from here',
        })
      let position = begin
      while (subscriber.ended === undefined) {
        const target = await hub.position()
        if (comparePositions(position, target) >= 0) {
          subscriber.after = position
          if (hub.attach(subscriber, target)) break
          continue
        }
        const records = await readDomainEvents(db, subscriber.domainKey, {
          after: position,
          until: target,
          limit: PAGE_RECORDS,
        })
        const domain = await authorize()
        for (const record of records) {
          const text = await present(domain, record)
          if (text !== '') yield text
        }
        position = records.length < PAGE_RECORDS ? target : (records.at(-1)?.position ?? target)
      }
      yield* follow(subscriber, authorize)
    } catch (error) {
      const reason = endReasonOf(error)
      if (reason === undefined) throw error
      yield control('end', { reason, message: END_MESSAGES[reason] })
    } finally {
      finish()
    }
  }

  async function* follow(subscriber: Subscriber, authorize: () => Promise<DomainAccess>): AsyncGenerator<string> {
    for (;;) {
      const turn = await subscriber.next(heartbeatMs)
      if (turn === 'quiet') {
        // The position moves on with events that are none of the caller's business.
        const position = hub.currentPosition()
        yield position === undefined ? ': quiet\n\n' : `: quiet\nid: ${formatPosition(position)}\n\n`
        continue
      }
      if ('ended' in turn) {
        if (turn.ended !== 'closed') yield control('end', { reason: turn.ended, message: END_MESSAGES[turn.ended] })
        return
      }
      const domain = await authorize()
      for (const record of turn.records) {
        if (subscriber.ended !== undefined) break
        const text = await present(domain, record)
        if (text !== '') yield text
      }
    }
  }
}

/** An event about the stream itself; it has no position. */
function control(event: 'end' | 'gap', data: Record<string, string>): string {
  return `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`
}

function endReasonOf(error: unknown): EndReason | undefined {
  const kind = kindOf(error)
  return kind === 'unauthenticated' || kind === 'forbidden' ? kind : undefined
}
