/**
 * Delivery of a consumer's messages: pulling them, with a wait or as a stream, and what their receivers answer. Callers of the same consumer
 * share its messages.
 */
import type { MessageGate } from '#api/devices/index.ts'
import type { AccessPolicy, FullDomains, UserPrincipal } from '#api/identity/index.ts'
import { loadPlaces } from '#api/messages/index.ts'
import type { LiveMessage } from '#api/messages/index.ts'
import { requireSelection } from '#core/changelog/index.ts'
import type { LetterSelection } from '#core/changelog/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { durationWithin } from '#core/durations.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { Page } from '#core/page.ts'
import { Slots } from '#core/slots.ts'
import { monotonicMs } from '#core/time.ts'
import {
  acknowledge,
  buryExhausted,
  discardLetters,
  findPassed,
  listLetters,
  putBack,
  retryLetters,
} from './deliveries.ts'
import type { LetterRow } from './deliveries.ts'
import { CONSUMER_METRICS } from './metrics.ts'
import { acknowledgePage, unpackPagesOf } from './pages.ts'
import { formatPlace, parsePlace } from './place.ts'
import type { Place } from './place.ts'
import { takeStep } from './reading.ts'
import type { Step, Taken } from './reading.ts'
import { storeError } from './repository.ts'
import type { Consumer } from './repository.ts'
import { MAX_DELAY_MS, MAX_WAIT_MS } from './schema.ts'
import type { DeadLetterQuery, Nack } from './schema.ts'
import { enterConsumer, requireSubscribe } from './service.ts'
import type { Waits } from './waits.ts'

/** A consumer in a path. */
export type At = { domainId: string; nameOrId: string }

export type Letter = LetterRow & { loaded: LiveMessage | undefined }

/** A caller that takes messages. `authenticate` returns its present rights. */
export type Taker = { principal: () => Promise<UserPrincipal>; at: At; limit: number; signal: AbortSignal }

export type DeliveryDeps = {
  database: Database
  access: AccessPolicy
  gate: Pick<MessageGate, 'authorize'>
  waits: Waits
  /** Domains whose quota `queued_bytes` is used up. */
  fullDomains: Pick<FullDomains, 'has'>
  /** Aborted when the process begins to stop. */
  signal: AbortSignal
}

/** Steps of this process at a time, and of one domain. */
const MAX_STEPS = 8
const MAX_STEPS_PER_DOMAIN = 4
const STEP_WAIT_MS = 10_000
const MAX_WAITING_STEPS = 2_000
/** Callers that wait for messages, of this process and of one domain. */
const MAX_WAITERS = 2_000
const MAX_WAITERS_PER_DOMAIN = 200

export class DeliveryService {
  readonly #deps: DeliveryDeps
  readonly #steps = new Slots({
    what: 'reads of consumers',
    max: MAX_STEPS,
    share: MAX_STEPS_PER_DOMAIN,
    waitMs: STEP_WAIT_MS,
    maxWaiting: MAX_WAITING_STEPS,
  })
  readonly #waiters = new Slots({
    what: 'callers that wait for messages of consumers',
    max: MAX_WAITERS,
    share: MAX_WAITERS_PER_DOMAIN,
  })

  constructor(deps: DeliveryDeps) {
    this.#deps = deps
  }

  /** The next messages, at most `limit`; none after the wait. Throws `rate_limited` and `unavailable` with too many callers that wait. */
  async pull(taker: Taker, wait: string | undefined): Promise<Taken[]> {
    const waitMs = wait === undefined ? 0 : durationWithin(wait, 'wait', [0, MAX_WAIT_MS])
    return await this.#next(taker, monotonicMs() + waitMs)
  }

  /** Throws the errors of `follow` that are known before its first message. */
  async requireTaking({ principal, at }: Taker): Promise<void> {
    await this.#enterForMessages(await principal(), at)
  }

  /** Delivers messages until the signal is aborted. Waits for `deliver` before it takes more. Rejects with the error that ends it. */
  async follow(taker: Taker, deliver: (taken: readonly Taken[]) => Promise<void>): Promise<void> {
    while (!taker.signal.aborted && !this.#deps.signal.aborted) {
      const taken = await this.#next(taker, monotonicMs() + MAX_WAIT_MS)
      if (taken.length > 0) await deliver(taken)
    }
  }

  /** Each or none. A message that was acknowledged before counts as acknowledged. Throws `malformed`, `not_found`. Returns their number. */
  async ack(caller: UserPrincipal, at: At, positions: readonly string[]): Promise<number> {
    const given = this.#parse(positions)
    const { key } = await this.#enterForMessages(caller, at)
    if (
      !(await acknowledgePage(this.#deps.database.db, key, given)) &&
      (await acknowledge(this.#deps.database.db, key, given)).length > 0
    )
      await this.#deps.database.transaction((tx) => acknowledgeUnpacked(tx, key, positions, given))
    CONSUMER_METRICS.acknowledged.add({}, given.length)
    this.#deps.waits.freed(key)
    return given.length
  }

  /** Each or none is delivered again. Throws `malformed`, `not_found`. Returns their number. */
  async nack(caller: UserPrincipal, at: At, { positions, delay, reason }: Nack): Promise<number> {
    const given = this.#parse(positions)
    const delayMs = delay === undefined ? 0 : durationWithin(delay, '/delay', [0, MAX_DELAY_MS])
    const consumer = await this.#enterForMessages(caller, at)
    const { key, maxDeliver } = consumer
    const put = { delayMs, reason: reason ?? null, maxDeliver }
    await this.#deps.database.transaction(async (tx) => {
      await unpackPagesOf(tx, key, given)
      requireAll(positions, await putBack(tx, key, given, put), [])
      await buryExhausted(tx, consumer)
    })
    this.#deps.waits.freed(key)
    return given.length
  }

  async deadLetters(caller: UserPrincipal, at: At, query: DeadLetterQuery): Promise<Page<Letter>> {
    const { domain, consumer } = await enterConsumer(this.#deps, caller, at, 'consumer_read')
    const { offset, limit } = query
    const { total, letters, next: end } = await listLetters(this.#deps.database.db, consumer.key, query)
    const readable = await this.#channelsOf(caller, domain.domainId, consumer)
    const loaded: LiveMessage[] = []
    // Messages may be large: those beyond the size are left out, and a smaller page has them.
    for (let [at, bytes] = [0, 0]; at < letters.length && bytes <= MAX_SHOWN_BYTES; at++)
      for (const message of await loadPlaces(this.#deps.database.db, letters.slice(at, at + 1), readable)) {
        loaded.push(message)
        bytes += message.payload.length
      }
    const items = letters.map((letter) => ({
      ...letter,
      loaded: loaded.find(({ batchSeq, index }) => batchSeq === letter.seq && index === letter.message),
    }))
    return { total, offset, limit, items, next: end }
  }

  /** Delivers dead letters again, or discards them. Returns their number. Throws `malformed`. */
  async retryDeadLetters(caller: UserPrincipal, at: At, selection: LetterSelection): Promise<number> {
    const { consumer } = await enterConsumer(this.#deps, caller, at, 'consumer_update')
    requireSelection(selection)
    const count = await this.#deps.database.transaction((tx) => retryLetters(tx, consumer.key, selection))
    this.#deps.waits.freed(consumer.key)
    return count
  }

  async discardDeadLetters(caller: UserPrincipal, at: At, selection: LetterSelection): Promise<number> {
    const { consumer } = await enterConsumer(this.#deps, caller, at, 'consumer_update')
    requireSelection(selection)
    return await this.#deps.database.transaction((tx) => discardLetters(tx, consumer.key, selection))
  }

  /** The consumer, for a caller who may take its messages now. A refusal is shown in the consumer. */
  async #enterForMessages(caller: UserPrincipal, at: At): Promise<Consumer> {
    const { domain, consumer } = await enterConsumer(this.#deps, caller, at, 'consumer_update')
    try {
      if (consumer.channels.length === 0)
        throw new ServiceError('invalid_state', 'the channels of the consumer were deleted: give it other ones')
      await requireSubscribe(
        this.#deps.gate,
        caller,
        domain.domainId,
        consumer.channels.map(({ id }) => id),
      )
    } catch (error) {
      if (error instanceof ServiceError && (kindOf(error) === 'forbidden' || kindOf(error) === 'invalid_state'))
        await storeError(this.#deps.database.db, consumer.key, error.message)
      throw error
    }
    return consumer
  }

  async #step(consumer: Consumer, limit: number, signal: AbortSignal): Promise<Step> {
    const work = () => {
      const isFull = this.#deps.fullDomains.has(consumer.domainKey)
      return this.#deps.database.transaction((tx) => takeStep(tx, consumer.key, { limit, isFull }))
    }
    const taken = await this.#steps.run(consumer.domainKey, work, signal)
    if (taken === undefined) throw new ServiceError('not_found', 'consumer not found')
    CONSUMER_METRICS.delivered.add({}, taken.taken.length)
    return taken
  }

  /** The next messages, or none at the deadline. Rights are checked again after each wait. */
  async #next(taker: Taker, deadlineMs: number): Promise<Taken[]> {
    const { at, limit } = taker
    const signal = AbortSignal.any([taker.signal, this.#deps.signal])
    let consumer = await this.#enterForMessages(await taker.principal(), at)
    if (deadlineMs <= monotonicMs()) return (await this.#lastStep(consumer, limit, signal)).taken
    const release = await this.#waiters.take(consumer.domainKey)
    const wait = this.#deps.waits.begin(
      consumer.key,
      consumer.channels.map(({ key }) => key),
    )
    try {
      for (;;) {
        const { taken, hasMore, nextDueSeconds } = await this.#step(consumer, limit, signal)
        if (taken.length > 0 || signal.aborted || monotonicMs() >= deadlineMs) return taken
        if (hasMore) continue
        await wait.next(nextDueSeconds, deadlineMs, signal)
        if (signal.aborted) return []
        consumer = await this.#enterForMessages(await taker.principal(), at)
      }
    } finally {
      wait.end()
      release()
    }
  }

  /** Reads without waiting: passes messages that are not for the consumer, in a bounded number of steps. */
  async #lastStep(consumer: Consumer, limit: number, signal: AbortSignal): Promise<Step> {
    let last = await this.#step(consumer, limit, signal)
    for (let count = 1; count < MAX_PASSING_STEPS && last.taken.length === 0 && last.hasMore; count++)
      last = await this.#step(consumer, limit, signal)
    return last
  }

  #parse(positions: readonly string[]): Place[] {
    return positions.map((text, index) => parsePlace(text, `/positions/${index}`))
  }

  /** The channels of the consumer that the caller may subscribe to. */
  async #channelsOf(caller: UserPrincipal, domainId: string, { channels }: Consumer) {
    const found = new Map<number, string>()
    for (const { id } of channels) {
      const [channel] = await requireSubscribe(this.#deps.gate, caller, domainId, [id]).catch((error: unknown) => {
        if (kindOf(error) === 'forbidden') return []
        throw error
      })
      if (channel !== undefined) found.set(channel.key, channel.id)
    }
    return found
  }
}

/** Messages that a page of dead letters shows, in bytes; the last may exceed it. */
const MAX_SHOWN_BYTES = 4 * 1024 * 1024
/** Steps of a caller that does not wait. */
const MAX_PASSING_STEPS = 20

/** Acknowledges messages of which some are in pages, or were acknowledged before. */
async function acknowledgeUnpacked(
  tx: Transaction,
  key: number,
  positions: readonly string[],
  given: readonly Place[],
): Promise<void> {
  await unpackPagesOf(tx, key, given)
  const lacking = await acknowledge(tx, key, given)
  if (lacking.length === 0) return
  const passed = await findPassed(tx, key, lacking)
  requireAll(positions, lacking, passed)
  requireAll(positions, await acknowledge(tx, key, given, passed), [])
}

/** Throws `not_found`, which names the positions that are neither in doubt nor known. */
function requireAll(positions: readonly string[], lacking: readonly Place[], known: readonly Place[]): void {
  const names = new Set(known.map(formatPlace))
  const foreign = new Set(lacking.map(formatPlace).filter((name) => !names.has(name)))
  if (foreign.size === 0) return
  const details = positions.flatMap((text, index) =>
    foreign.has(formatPlace(parsePlace(text, '')))
      ? [{ path: `/positions/${index}`, message: 'is not the position of a message that this consumer was given' }]
      : [],
  )
  throw new ServiceError(
    'not_found',
    `${foreign.size} of the positions are not those of messages that this consumer was given: nothing was changed`,
    { details },
  )
}
