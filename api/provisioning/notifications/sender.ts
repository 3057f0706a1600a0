/**
 * Sends what was put down: by mail or post, so many a minute to each contact, again with growing pauses when it fails, and
 * given up in the end. A bounded number is on its way at any moment, and as one of them ends another one begins; of these an
 * owner has his share and a host its own, so that contacts which do not answer delay those of their owner alone. Any number of
 * processes send; whoever dies leaves what it had to the others, so a message may be told twice and is never forgotten.
 */
import type { MessageGate } from '#api/devices/index.ts'
import type { Mailer, UserPrincipal } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import { kindOf } from '#core/errors/index.ts'
import { createLimiter } from './limiter.ts'
import type { Limiter } from './limiter.ts'
import type { BucketRule, SharedLimits } from '#core/limits/index.ts'
import { startRounds } from '#core/changelog/index.ts'
import type { Pause, Rounds } from '#core/changelog/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { monotonicMs } from '#core/time.ts'
import { mailOf } from './payload.ts'
import {
  claimDeliveries,
  failDeliveries,
  holdBackDeliveries,
  removeDelivery,
  removeOldDeadLetters,
} from './repository.ts'
import type { DueDelivery } from './repository.ts'
import { createReachability } from './reachability.ts'
import type { Reachability } from './reachability.ts'
import { POST_DEADLINE_MS, postWebhook } from './webhook.ts'

export type SenderDeps = {
  database: Database
  gate: MessageGate
  mailer: Mailer
  limits: SharedLimits | undefined
  logger: Logger
  privateHosts: readonly string[]
  /** The key that posts of a subscription are signed with. */
  signingSecretOf: (subscriptionId: string) => string
  /** Pauses before the second attempt, the third, and so on; tests shorten them. */
  retrySeconds?: readonly number[]
  intervalMs?: number
  postDeadlineMs?: number
}

const INTERVAL_MS = 500
/** Between two claims, however fast places come free: what ends in it is claimed for together. */
const CLAIM_REST_MS = 10
/** Deliveries that this process has on their way, and how many of them may be of one owner. */
const MAX_IN_FLIGHT = 64
const MAX_OF_OWNER = 8
/** Posts to one host at once, and mails: these leave through one server, which other mails need too. */
const MAX_TO_HOST = 16
const MAX_MAILS = 3
/** What finds its host busy is looked at again after so long. */
const BUSY_HOST_SECONDS = 1
/** Longer than any attempt; beyond, another process takes it. */
const LEASE_SECONDS = 120
const RETRY_SECONDS: readonly number[] = [10, 60, 300, 1800, 7200]
const RULE: BucketRule = { burst: 30, perMinute: 30 }
const DEAD_LETTERS_KEPT_DAYS = 30
const PURGE_INTERVAL_MS = 3_600_000
const MAX_ERROR_CHARS = 500
/** Whoever answers so wants no more (RFC 9110 section 15.5.11). */
const GONE = 410

export class Sender {
  readonly #deps: SenderDeps
  readonly #retrySeconds: readonly number[]
  readonly #stopping = new AbortController()
  readonly #limiter: Limiter
  readonly #reachability: Reachability
  /** What is on its way: how many of each owner, and to each host. */
  readonly #ofOwners = new Map<number, number>()
  readonly #toHosts = new Map<string, number>()
  readonly #inFlight = new Set<Promise<void>>()
  readonly #rounds: Rounds
  #afterOwner = 0
  #purgedAtMs = -Infinity

  /** Sends until it is stopped. */
  constructor(deps: SenderDeps) {
    this.#deps = deps
    this.#retrySeconds = deps.retrySeconds ?? RETRY_SECONDS
    this.#limiter = createLimiter('notify', RULE, deps.limits)
    this.#reachability = createReachability(this.#retrySeconds)
    this.#rounds = startRounds(() => this.#round())
  }

  /** There may be something to send. */
  wake(): void {
    this.#rounds.wake()
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    await this.#rounds.stop()
    await Promise.all(this.#inFlight)
  }

  async #round(): Promise<Pause> {
    const { logger, intervalMs = INTERVAL_MS } = this.#deps
    try {
      await this.#purge()
      // There are owners behind: nobody waits for a pause because many others have something that is not due.
      if (await this.#claim()) return { pauseMs: 0, isPokable: true }
      return { pauseMs: intervalMs, isPokable: true, restMs: CLAIM_REST_MS }
    } catch (error) {
      logger.warn({ err: error }, 'failed to look for notifications')
      return { pauseMs: intervalMs, isPokable: false }
    }
  }

  /** Begins as many as there are places for; true when owners behind them have more. */
  async #claim(): Promise<boolean> {
    const limit = MAX_IN_FLIGHT - this.#inFlight.size
    if (limit <= 0) return false
    const { due, nextOwner } = await claimDeliveries(this.#deps.database.db, {
      limit,
      maxOfOwner: MAX_OF_OWNER,
      busy: this.#ofOwners,
      leaseSeconds: LEASE_SECONDS,
      afterOwner: this.#afterOwner,
    })
    this.#afterOwner = nextOwner
    for (const one of due) this.#begin(one)
    return nextOwner !== 0
  }

  async #purge(): Promise<void> {
    if (monotonicMs() - this.#purgedAtMs < PURGE_INTERVAL_MS) return
    this.#purgedAtMs = monotonicMs()
    await removeOldDeadLetters(this.#deps.database.db, DEAD_LETTERS_KEPT_DAYS)
  }

  /** Sends it beside the others; its place is free when it has ended. */
  #begin(due: DueDelivery): void {
    count(this.#ofOwners, due.owner.key, 1)
    const work = this.#deliver(due)
      .catch((error: unknown) => {
        // What could not even be put back comes again when its lease ends.
        this.#deps.logger.warn({ err: error }, 'a notification was not settled')
        return false
      })
      .then((isMore) => {
        count(this.#ofOwners, due.owner.key, -1)
        this.#inFlight.delete(work)
        if (isMore) this.#rounds.wake()
      })
    this.#inFlight.add(work)
  }

  /** Resolves to whether it is settled, so that there may be more to send at once; what is held back comes again soon. */
  async #deliver(due: DueDelivery): Promise<boolean> {
    const { db } = this.#deps.database
    if (!(await this.#mayBeTold(due))) {
      await removeDelivery(db, due.key)
      return true
    }
    if (this.#reachability.isSilent(due.owner.key, due.contact)) {
      await this.#fail(due, new Error('the host of the contact did not answer lately'), 'for all')
      return true
    }
    const host = hostOf(due.contact)
    if ((this.#toHosts.get(host) ?? 0) >= (host === MAIL ? MAX_MAILS : MAX_TO_HOST)) {
      await holdBackDeliveries(db, due, BUSY_HOST_SECONDS)
      return false
    }
    // Counted before anything is waited for: two that look at the same moment are two.
    count(this.#toHosts, host, 1)
    try {
      return await this.#attempt(due, host)
    } finally {
      count(this.#toHosts, host, -1)
    }
  }

  async #attempt(due: DueDelivery, host: string): Promise<boolean> {
    const { db } = this.#deps.database
    const { contact, owner } = due
    const pauseMs = await this.#limiter.take(contact)
    if (pauseMs > 0) {
      await holdBackDeliveries(db, due, pauseMs / 1000)
      return false
    }
    const failure = await failureOf(this.#send(due))
    if (this.#stopping.signal.aborted && failure !== undefined) {
      await holdBackDeliveries(db, due, 0)
      return false
    }
    // An answer is an answer, whatever it says: only silence is about the host, and of mails the relay alone knows.
    const isSilence = failure !== undefined && !(failure instanceof RefusedPost) && host !== MAIL
    if (isSilence) this.#reachability.wasSilent(owner.key, contact)
    else this.#reachability.hasAnswered(owner.key, contact)
    if (failure === undefined) await removeDelivery(db, due.key)
    else await this.#fail(due, failure, isSilence ? 'for all' : 'alone')
    return true
  }

  /** The rights of whoever subscribed, as they are now (decision 57), and whether the address of a mail agreed. */
  async #mayBeTold({ owner, domainId, channelId, isConfirmed }: DueDelivery): Promise<boolean> {
    if (!owner.isEnabled || !isConfirmed) return false
    const principal: UserPrincipal = {
      kind: 'user',
      key: owner.key,
      id: owner.id,
      isPlatformAdmin: owner.isPlatformAdmin,
      boundDomainKey: undefined,
      credential: 'login',
      scope: undefined,
      sessionId: undefined,
      origin: undefined,
    }
    const path = { domain: domainId, channel: channelId }
    try {
      await this.#deps.gate.authorize({ kind: 'user', principal }, path, 'subscribe')
      return true
    } catch (error) {
      if (kindOf(error) === 'forbidden' || kindOf(error) === 'not_found') return false
      throw error
    }
  }

  async #send({ contact, payload, subscriptionId, channelId }: DueDelivery): Promise<void> {
    const { mailer, privateHosts, signingSecretOf, postDeadlineMs: deadlineMs = POST_DEADLINE_MS } = this.#deps
    if (!contact.includes('://')) {
      const subtopic = String(payload['subtopic'] ?? '')
      return await mailer.attempt(mailOf(contact, subtopic === '' ? channelId : `${channelId}.${subtopic}`, payload))
    }
    const body = JSON.stringify({ subscription_id: subscriptionId, ...payload })
    const secret = signingSecretOf(subscriptionId)
    const { signal } = this.#stopping
    const status = await postWebhook(contact, { body, secret, privateHosts, deadlineMs, signal })
    if (status < 200 || status > 299) throw new RefusedPost(status)
  }

  async #fail(due: DueDelivery, error: Error, whom: 'alone' | 'for all'): Promise<void> {
    const { database, logger } = this.#deps
    const isFinal = error instanceof RefusedPost && error.status === GONE
    const pauses = isFinal ? [] : this.#retrySeconds
    const isGivenUp = pauses[due.attempts - 1] === undefined
    logger[isGivenUp ? 'warn' : 'info'](
      { subscription: due.subscriptionId, attempts: due.attempts },
      isGivenUp ? 'a notification was given up' : 'a notification could not be delivered yet',
    )
    await failDeliveries(database.db, due, {
      retrySeconds: pauses,
      error: error.message.slice(0, MAX_ERROR_CHARS),
      isForAll: whom === 'for all',
    })
  }
}

async function failureOf(work: Promise<void>): Promise<Error | undefined> {
  try {
    await work
    return undefined
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error))
  }
}

/** All mails leave through one server. */
const MAIL = 'mail'

const hostOf = (contact: string) => (contact.includes('://') ? new URL(contact).host : MAIL)

/** Names with nothing are not kept. */
function count<K>(counts: Map<K, number>, name: K, change: number): void {
  const next = (counts.get(name) ?? 0) + change
  if (next === 0) counts.delete(name)
  else counts.set(name, next)
}

class RefusedPost extends Error {
  readonly status: number
  constructor(status: number) {
    super(`the contact answered ${status}`)
    this.status = status
  }
}
