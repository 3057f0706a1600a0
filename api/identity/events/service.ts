/**
 * Streams the events of a domain as server-sent events: from a position, without gaps, restricted to the entities that
 * the caller may read. `Last-Event-ID` is the position.
 */
import type { Database } from '#core/database/index.ts'
import { kindOf } from '#core/errors/index.ts'
import { comparePositions, formatPosition, parsePosition, settledEnd } from '#core/changelog/index.ts'
import type { Position } from '#core/changelog/index.ts'
import type { StreamBudget, StreamOwner } from '#core/streams/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { withDeadline } from '#core/time.ts'
import type { AccessPolicy, DomainAccess, UserPrincipal } from '../access/index.ts'
import { narrowIds, visibilityOf } from '../journal/index.ts'
import type { EventRecord } from './event.ts'
import type { EventFanOut } from './fan-out.ts'
import { findRemovedPosition, readDomainEvents } from './repository.ts'
import { Subscriber } from './subscriber.ts'
import type { SubscriberEnd } from './subscriber.ts'

export type EventCaller = {
  principal: UserPrincipal
  /** Checks the credentials again while the stream is open. Throws `unauthenticated`. */
  authenticate: () => Promise<UserPrincipal>
}

/** The writer of an event stream, which serializes for its protocol. */
export type EventWriter = {
  /** Writes a record with these attributes, which are those of the record or a part of them. */
  record(record: EventRecord, attributes: EventRecord['attributes']): void
  /** The stream is complete up to this position. */
  position(position: string): void
  /** Records before the next one are no longer in the journal. */
  gap(message: string): void
  end(reason: SubscriberEnd | 'behind'): void
  /** Resolves when the written data was passed to the socket. */
  drained(): Promise<void>
}

/** The source of an event stream. */
export type EventSource = {
  owner: StreamOwner
  /** See `EventStreamOptions`. */
  keptBytes(): number
  /** The position of an idle stream, which advances with records that the caller may not read. Undefined: not known. */
  quietPosition(): string | undefined
  /** Starts to write to the stream until it ends. Throws `unavailable`, `timeout`. */
  begin(stream: EventWriter): Promise<{ close(): void }>
}

/** Page size for past events. */
const PAGE_RECORDS = 200
/** Deadline for reading the journal. After it the stream is not opened. */
const OPEN_DEADLINE_MS = 5000

export type EventsDeps = {
  database: Database
  access: AccessPolicy
  fanOut: EventFanOut
  budget: StreamBudget
  logger: Logger
}

export class EventsService {
  readonly #database: Database
  readonly #access: AccessPolicy
  readonly #fanOut: EventFanOut
  readonly #budget: StreamBudget
  readonly #logger: Logger

  constructor(deps: EventsDeps) {
    this.#database = deps.database
    this.#access = deps.access
    this.#fanOut = deps.fanOut
    this.#budget = deps.budget
    this.#logger = deps.logger
  }

  /** Opens the events of a domain after `lastEventId`, or from the current end. Throws `malformed`, `forbidden`. */
  async open(
    { principal, authenticate }: EventCaller,
    domainId: string,
    lastEventId: string | undefined,
  ): Promise<EventSource> {
    const after = lastEventId === undefined || lastEventId === '' ? undefined : parsePosition(lastEventId)
    const { domainKey, domainId: id } = await this.#enter(principal, domainId)
    const authorize = async () => await this.#enter(await authenticate(), domainId)
    /** True when every record up to the position of the fan-out was written. */
    const state = { isCaughtUp: false }
    let subscriber: Subscriber | undefined
    return {
      owner: { user: principal.key, domain: id },
      keptBytes: () => subscriber?.keptBytes ?? 0,
      quietPosition: () => {
        const position = state.isCaughtUp ? this.#fanOut.currentPosition() : undefined
        return position === undefined ? undefined : formatPosition(position)
      },
      begin: async (stream) => {
        const following = new Subscriber({
          domainKey,
          authorize: async () => void (await authorize()),
          onEnd: (reason) => stream.end(reason),
          keep: this.#budget.keep,
        })
        subscriber = following
        this.#fanOut.join(following)
        const close = () => {
          following.end('closed')
          this.#fanOut.leave(following)
        }
        try {
          const begin = await this.#findBegin(after)
          this.#write(following, stream, authorize, { ...begin, state }).catch((error: unknown) => {
            this.#logger.warn({ err: error }, 'failed to read events for a stream; ending it')
            stream.end('behind')
          })
          return { close }
        } catch (error) {
          close()
          throw error
        }
      },
    }
  }

  async #enter(principal: UserPrincipal, domainId: string): Promise<DomainAccess> {
    const domain = await this.#access.enter(principal, domainId)
    domain.require('read')
    return domain
  }

  /** Returns the attributes that this caller may read. Undefined when the caller may not read the record. */
  async #shownAttributes(domain: DomainAccess, record: EventRecord): Promise<EventRecord['attributes'] | undefined> {
    const sight = await visibilityOf(this.#database.db, domain, record)
    if (sight === 'none') return undefined
    return sight === 'all' ? record.attributes : narrowIds(record.attributes, sight.ids)
  }

  async #findBegin(after: Position | undefined): Promise<{ begin: Position; hasGap: boolean }> {
    const [end, removed] = await withDeadline(
      Promise.all([settledEnd(this.#database.db), findRemovedPosition(this.#database.db), this.#fanOut.position()]),
      OPEN_DEADLINE_MS,
      'reading the journal',
    )
    // A position after the end belongs to another database, or to this one before it was restored from a backup.
    const isAhead = after !== undefined && comparePositions(after, end) > 0
    const isOld = after !== undefined && removed !== undefined && comparePositions(after, removed) < 0
    return { begin: after === undefined || isAhead ? end : after, hasGap: isAhead || isOld }
  }

  /** Writes at the speed of the reader. New records wait in the subscriber, which is bounded. */
  async #writeRecords(
    stream: EventWriter,
    subscriber: Subscriber,
    domain: DomainAccess,
    records: readonly EventRecord[],
  ): Promise<void> {
    for (const record of records) {
      if (subscriber.ended !== undefined) return
      const attributes = await this.#shownAttributes(domain, record)
      if (attributes === undefined) continue
      stream.record(record, attributes)
      await stream.drained()
    }
  }

  async #write(
    subscriber: Subscriber,
    stream: EventWriter,
    authorize: () => Promise<DomainAccess>,
    { begin, hasGap, state }: { begin: Position; hasGap: boolean; state: { isCaughtUp: boolean } },
  ): Promise<void> {
    try {
      // The client stores an id without data, so that it can resume from here before the first event.
      stream.position(formatPosition(begin))
      if (hasGap)
        stream.gap('events before this position are missing: read the current state again, then continue from here')
      let position = begin
      while (subscriber.ended === undefined) {
        const target = await this.#fanOut.position()
        if (comparePositions(position, target) >= 0) {
          subscriber.after = position
          if (this.#fanOut.attach(subscriber, target)) break
          continue
        }
        const records = await readDomainEvents(this.#database.db, subscriber.domainKey, {
          after: position,
          until: target,
          limit: PAGE_RECORDS,
        })
        await this.#writeRecords(stream, subscriber, await authorize(), records)
        position = records.length < PAGE_RECORDS ? target : (records.at(-1)?.position ?? target)
      }
      for (;;) {
        state.isCaughtUp = true
        const turn = await subscriber.next()
        state.isCaughtUp = false
        if ('ended' in turn) return
        await this.#writeRecords(stream, subscriber, await authorize(), turn.records)
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
