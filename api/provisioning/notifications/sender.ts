/**
 * Sends deliveries by mail or webhook, with a rate limit for each contact and retries with growing delays; finally it
 * gives them up. The number of concurrent deliveries is bounded in total, for each owner and for each host, so that
 * unresponsive contacts only delay deliveries of their owner. Several processes can send. After a crash another process
 * claims the deliveries, so a notification can be sent twice but is never lost.
 */
import type { MessageGate } from '#api/devices/index.ts'
import type { AccessPolicy, Journal, Mailer, Quotas, UserPrincipal } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import { MAX_WAIT_DAYS } from '#api/messages/index.ts'
import { kindOf } from '#core/errors/index.ts'
import { createLimiter } from './limiter.ts'
import type { Limiter } from './limiter.ts'
import type { BucketRule, SharedLimits } from '#core/limits/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { countRefusal } from '#core/metrics/index.ts'
import { startRounds } from '#core/rounds.ts'
import type { Pause, Rounds } from '#core/rounds.ts'
import { monotonicMs } from '#core/time.ts'
import { MAIL, hostOf } from './contact.ts'
import { NOTIFICATION_METRICS } from './metrics.ts'
import { bodyOfRule, mailOf, mailOfRule } from './payload.ts'
import {
  claimDeliveries,
  completeDelivery,
  deferDeliveries,
  failDeliveries,
  holdDeliveries,
  removeOldDeadLetters,
} from './repository.ts'
import type { DueDelivery } from './repository.ts'
import { createReachability } from './reachability.ts'
import type { Reachability } from './reachability.ts'
import { isMember } from './rule-contacts.ts'
import { POST_DEADLINE_MS, postWebhook } from './webhook.ts'

export type SenderDeps = {
  database: Database
  gate: MessageGate
  access: Pick<AccessPolicy, 'enter'>
  journal: Pick<Journal, 'change'>
  mailer: Mailer
  quotas: Pick<Quotas, 'spendNotification'>
  limits: SharedLimits | undefined
  logger: Logger
  privateHosts: readonly string[]
  /** Returns the key that signs webhook requests of a subscription. */
  signingSecretOf: (subscriptionId: string) => string
  /** Delays before the second and later attempts. Tests shorten them. */
  retrySeconds?: readonly number[]
  intervalMs?: number
  postDeadlineMs?: number
  quotaSeconds?: number
  rightSeconds?: number
}

const INTERVAL_MS = 500
/** Minimum pause between two claims, so that deliveries that end together are replaced together. */
const CLAIM_REST_MS = 10
/** Maximum number of concurrent deliveries in this process, and of one owner. */
const MAX_IN_FLIGHT = 64
const MAX_OF_OWNER = 8
/** Maximum number of concurrent webhook requests to one host, and of mails: these share one server with other mails. */
const MAX_TO_HOST = 16
const MAX_MAILS = 3
/** Delay of a delivery whose host is busy. */
const BUSY_HOST_SECONDS = 1
/** Delay of a delivery whose domain has used up its quota of the day: a raised quota is in force within this time. */
const QUOTA_SECONDS = 60
/** Delay of a delivery whose user may not subscribe to the channel: a right that is given again is in force within this time. */
const RIGHT_SECONDS = 60
/** Longer than any attempt. After it another process claims the delivery. */
const LEASE_SECONDS = 120
const RETRY_SECONDS: readonly number[] = [10, 60, 300, 1800, 7200]
/** The limits of one contact: a mailbox is read by a person, a webhook by a program. */
const MAIL_RULE: BucketRule = { burst: 30, perMinute: 30 }
const WEBHOOK_RULE: BucketRule = { burst: 100, perMinute: 600 }
const SECONDS_PER_MINUTE = 60
const DEAD_LETTERS_KEPT_DAYS = 30
const PURGE_INTERVAL_MS = 3_600_000
const MAX_ERROR_CHARS = 500
/** The contact wants no further notifications (RFC 9110 section 15.5.11). */
const GONE = 410

export class Sender {
  readonly #deps: SenderDeps
  readonly #retrySeconds: readonly number[]
  readonly #stopping = new AbortController()
  readonly #mailLimiter: Limiter
  readonly #webhookLimiter: Limiter
  readonly #reachability: Reachability
  /** Numbers of running deliveries by owner and by host. */
  readonly #ofOwners = new Map<number, number>()
  readonly #toHosts = new Map<string, number>()
  readonly #inFlight = new Set<Promise<void>>()
  readonly #rounds: Rounds
  #afterOwner = 0
  #purgedAtMs = -Infinity

  /** Starts to send. `stop` ends it. */
  constructor(deps: SenderDeps) {
    this.#deps = deps
    this.#retrySeconds = deps.retrySeconds ?? RETRY_SECONDS
    this.#mailLimiter = createLimiter('notify', MAIL_RULE, deps.limits)
    this.#webhookLimiter = createLimiter('webhook', WEBHOOK_RULE, deps.limits)
    this.#reachability = createReachability(this.#retrySeconds)
    this.#rounds = startRounds(() => this.#round())
  }

  /** Wakes the sender because there may be due deliveries. */
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
      // Further owners remain, so the next claim follows without a pause.
      if (await this.#claim()) return { pauseMs: 0, isWakeable: true }
      return { pauseMs: intervalMs, isWakeable: true, minPauseMs: CLAIM_REST_MS }
    } catch (error) {
      logger.warn({ err: error }, 'failed to claim notifications; retrying')
      return { pauseMs: intervalMs, isWakeable: false }
    }
  }

  /** Starts as many deliveries as the limit permits. Returns true when further owners may have due deliveries. */
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

  /** Starts a delivery. It leaves the count of running deliveries when it ends. */
  #begin(due: DueDelivery): void {
    count(this.#ofOwners, due.owner.key, 1)
    const work = this.#deliver(due)
      .catch((error: unknown) => {
        // The delivery is claimed again when its lease expires.
        this.#deps.logger.warn({ err: error }, 'failed to update a notification; retrying after its lease')
        return false
      })
      .then((isMore) => {
        count(this.#ofOwners, due.owner.key, -1)
        this.#inFlight.delete(work)
        if (isMore) this.#rounds.wake()
      })
    this.#inFlight.add(work)
  }

  /**
   * Resolves to true when the delivery has ended, so that the next can start immediately; to false when it was delayed.
   */
  async #deliver(due: DueDelivery): Promise<boolean> {
    const refusal = await this.#refusalOf(due)
    if (refusal !== undefined) {
      await this.#hold(due, refusal)
      return false
    }
    if (this.#reachability.isSilent(due.owner.key, due.contact)) {
      await this.#fail(due, new Error('the host of the contact does not respond'), 'for all')
      return true
    }
    const host = hostOf(due.contact)
    if ((this.#toHosts.get(host) ?? 0) >= (host === MAIL ? MAX_MAILS : MAX_TO_HOST)) {
      await this.#defer(due, BUSY_HOST_SECONDS)
      return false
    }
    // Counted before the first await, so that concurrent checks see it.
    count(this.#toHosts, host, 1)
    try {
      return await this.#attempt(due, host)
    } finally {
      count(this.#toHosts, host, -1)
    }
  }

  async #attempt(due: DueDelivery, host: string): Promise<boolean> {
    const { contact, owner } = due
    const [limiter, rule] =
      host === MAIL ? [this.#mailLimiter, MAIL_RULE] : ([this.#webhookLimiter, WEBHOOK_RULE] as const)
    const pauseMs = await limiter.take(contact)
    if (pauseMs > 0) {
      countRefusal('notification_rate')
      // One after the other, at the rate: what is claimed then has a token, and is not deferred again.
      await this.#defer(due, pauseMs / 1000, SECONDS_PER_MINUTE / rule.perMinute)
      return false
    }
    if (!(await this.#deps.quotas.spendNotification(due))) {
      countRefusal('notification_quota')
      await this.#defer(due, this.#deps.quotaSeconds ?? QUOTA_SECONDS)
      return false
    }
    const failure = await failureOf(this.#send(due))
    if (this.#stopping.signal.aborted && failure !== undefined) {
      await this.#defer(due, 0)
      return false
    }
    // Any response shows that the host is reachable. For mails only the mail server knows.
    const isSilence = failure !== undefined && !(failure instanceof RefusedPost) && host !== MAIL
    if (isSilence) this.#reachability.wasSilent(owner.key, contact)
    else this.#reachability.hasAnswered(owner.key, contact)
    if (failure === undefined) {
      NOTIFICATION_METRICS.deliveries.add({ outcome: 'delivered' })
      await completeDelivery(this.#deps.database, due, LEASE_SECONDS)
    } else await this.#fail(due, failure, isSilence ? 'for all' : 'alone')
    return true
  }

  async #defer(due: DueDelivery, pauseSeconds: number, spacingSeconds?: number): Promise<void> {
    await this.#deps.database.transaction((tx) => deferDeliveries(tx, due, pauseSeconds, spacingSeconds))
  }

  /** A person must act before the subscription delivers again: the first of a row is in the journal. Its messages wait meanwhile. */
  async #hold(due: DueDelivery, reason: string): Promise<void> {
    const { database, journal, logger, rightSeconds: pauseSeconds = RIGHT_SECONDS } = this.#deps
    const { subscriptionId: id, channelId, channelKey, domainKey, owner } = due
    const hold = { reason, pauseSeconds, expiryDays: MAX_WAIT_DAYS }
    // Only the first failure is in the journal. That of a contact of a rule shows on the rule.
    if (due.hasFailed || channelKey === null)
      return void (await database.transaction((tx) => holdDeliveries(tx, due, hold)))
    logger.info({ subscription: id, reason }, 'the notifications of a subscription wait')
    await journal.change('system', async (tx, record) => {
      if (!(await holdDeliveries(tx, due, hold))) return
      const attributes = { id, channel_id: channelId, reason }
      record({ operation: 'subscription.refuse', domainKey, entityKeys: [channelKey, owner.key], attributes })
    })
  }

  /** Undefined when the subscriber still has `subscribe` (decision 57) and the email address is confirmed. */
  async #refusalOf(due: DueDelivery): Promise<string | undefined> {
    const { owner, domainId, channelId, isConfirmed, ruleId, memberKey } = due
    const { access, database, gate } = this.#deps
    const user = `the user of the ${ruleId === null ? 'subscription' : 'rule'}`
    if (!owner.isEnabled) return `${user} is disabled`
    if (!isConfirmed) return 'the email address is not confirmed'
    if (memberKey !== null && !(await isMember(database.db, access, memberKey, domainId)))
      return 'the email address is no longer that of a member, and is not confirmed'
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
      // What no message caused is about the whole domain.
      if (channelId === '') (await access.enter(principal, domainId)).require('channel_subscribe')
      else await gate.authorize({ kind: 'user', principal }, path, 'subscribe')
      return undefined
    } catch (error) {
      if (kindOf(error) === 'forbidden' || kindOf(error) === 'not_found')
        return `${user} may not subscribe to the channel, or the channel is disabled`
      throw error
    }
  }

  async #send({ id, contact, payload, subscriptionId, channelId, ruleId }: DueDelivery): Promise<void> {
    const { mailer, privateHosts, signingSecretOf, postDeadlineMs: deadlineMs = POST_DEADLINE_MS } = this.#deps
    if (!contact.includes('://')) {
      if (ruleId !== null) return await mailer.attempt(mailOfRule(contact, payload))
      const subtopic = String(payload['subtopic'] ?? '')
      return await mailer.attempt(mailOf(contact, subtopic === '' ? channelId : `${channelId}.${subtopic}`, payload))
    }
    const body =
      ruleId === null ? JSON.stringify({ id, subscription_id: subscriptionId, ...payload }) : bodyOfRule(id, payload)
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
    NOTIFICATION_METRICS.deliveries.add({ outcome: isGivenUp ? 'given_up' : 'retried' })
    logger[isGivenUp ? 'warn' : 'info'](
      { subscription: due.subscriptionId, attempts: due.attempts },
      isGivenUp ? 'failed to deliver a notification; giving up' : 'failed to deliver a notification; retrying',
    )
    const failed = {
      retrySeconds: pauses,
      error: error.message.slice(0, MAX_ERROR_CHARS),
      isForAll: whom === 'for all',
    }
    await database.transaction((tx) => failDeliveries(tx, due, failed))
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

/** Entries with the count 0 are removed. */
function count<K>(counts: Map<K, number>, name: K, change: number): void {
  const next = (counts.get(name) ?? 0) + change
  if (next === 0) counts.delete(name)
  else counts.set(name, next)
}

class RefusedPost extends Error {
  readonly status: number
  constructor(status: number) {
    super(`the contact responded with status ${status}`)
    this.status = status
  }
}
