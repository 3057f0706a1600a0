/**
 * Sends what was put down: by mail or post, so many a minute to each contact, again with growing pauses when it fails, and
 * given up in the end. Any number of processes send; whoever dies leaves what it had to the others, so a message may be told
 * twice and is never forgotten.
 */
import { LRUCache } from 'lru-cache'
import type { MessageGate } from '#api/devices/index.ts'
import type { Mailer, UserPrincipal } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import { kindOf } from '#core/errors/index.ts'
import { fullBucket, refill, waitMs } from '#core/limits/index.ts'
import type { Bucket, BucketRule, SharedLimits } from '#core/limits/index.ts'
import { startRounds } from '#core/log/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { monotonicMs } from '#core/time.ts'
import { mailOf } from './payload.ts'
import { claimDeliveries, postponeDelivery, removeDelivery, removeOldDeadLetters } from './repository.ts'
import type { DueDelivery } from './repository.ts'
import { postWebhook } from './webhook.ts'

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
}

const INTERVAL_MS = 500
/** Deliveries of one round, sent at once. */
const MAX_AT_ONCE = 16
/** Longer than any attempt; beyond, another process takes it. */
const LEASE_SECONDS = 120
const RETRY_SECONDS: readonly number[] = [10, 60, 300, 1800, 7200]
const RULE: BucketRule = { burst: 30, perMinute: 30 }
const MAX_CONTACTS = 10_000
const DEAD_LETTERS_KEPT_DAYS = 30
const PURGE_INTERVAL_MS = 3_600_000
const MAX_ERROR_CHARS = 500
/** Whoever answers so wants no more (RFC 9110 section 15.5.11). */
const GONE = 410

export function startSender(deps: SenderDeps): { poke(): void; stop(): Promise<void> } {
  const { database, gate, mailer, limits, logger, privateHosts, signingSecretOf } = deps
  const { db } = database
  const retrySeconds = deps.retrySeconds ?? RETRY_SECONDS
  const intervalMs = deps.intervalMs ?? INTERVAL_MS
  const stopping = new AbortController()
  const buckets = new LRUCache<string, Bucket>({ max: MAX_CONTACTS })
  let purgedAtMs = -Infinity

  /** Milliseconds until the contact may be told again; 0: now, and one is taken. */
  async function takeTurn(contact: string): Promise<number> {
    const nowMs = monotonicMs()
    const bucket = buckets.get(contact) ?? fullBucket(RULE, nowMs)
    buckets.set(contact, bucket)
    refill(bucket, RULE, nowMs)
    const localMs = waitMs(bucket, RULE)
    if (localMs > 0) return localMs
    bucket.tokens -= 1
    return (await limits?.take([{ name: `notify ${contact}`, rule: RULE }])) ?? 0
  }

  /** The rights of whoever subscribed, as they are now (decision 57). */
  async function mayBeTold({ owner, domainId, channelId }: DueDelivery): Promise<boolean> {
    if (!owner.isEnabled) return false
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
    try {
      await gate.authorize({ kind: 'user', principal }, { domain: domainId, channel: channelId }, 'subscribe')
      return true
    } catch (error) {
      if (kindOf(error) === 'forbidden' || kindOf(error) === 'not_found') return false
      throw error
    }
  }

  async function send({ contact, payload, subscriptionId, channelId }: DueDelivery): Promise<void> {
    if (!contact.includes('://')) {
      const subtopic = String(payload['subtopic'] ?? '')
      return await mailer.attempt(mailOf(contact, subtopic === '' ? channelId : `${channelId}.${subtopic}`, payload))
    }
    const body = JSON.stringify({ subscription_id: subscriptionId, ...payload })
    const secret = signingSecretOf(subscriptionId)
    const status = await postWebhook(contact, { body, secret, privateHosts, signal: stopping.signal })
    if (status < 200 || status > 299) throw new RefusedPost(status)
  }

  async function deliver(due: DueDelivery): Promise<void> {
    if (!(await mayBeTold(due))) return await removeDelivery(db, due.key)
    const pauseMs = await takeTurn(due.contact)
    if (pauseMs > 0)
      return await postponeDelivery(db, due.key, {
        pauseSeconds: pauseMs / 1000,
        error: null,
        countsAsAttempt: false,
      })
    try {
      await send(due)
    } catch (error) {
      if (stopping.signal.aborted)
        return await postponeDelivery(db, due.key, { pauseSeconds: 0, error: null, countsAsAttempt: false })
      const isFinal = error instanceof RefusedPost && error.status === GONE
      const pauseSeconds = isFinal ? undefined : retrySeconds[due.attempts - 1]
      const facts = { subscription: due.subscriptionId, attempts: due.attempts }
      logger[pauseSeconds === undefined ? 'warn' : 'info'](
        facts,
        pauseSeconds === undefined ? 'a notification was given up' : 'a notification could not be delivered yet',
      )
      const text = error instanceof Error ? error.message : String(error)
      return await postponeDelivery(db, due.key, {
        pauseSeconds,
        error: text.slice(0, MAX_ERROR_CHARS),
        countsAsAttempt: true,
      })
    }
    await removeDelivery(db, due.key)
  }

  async function purge(): Promise<void> {
    if (monotonicMs() - purgedAtMs < PURGE_INTERVAL_MS) return
    purgedAtMs = monotonicMs()
    await removeOldDeadLetters(db, DEAD_LETTERS_KEPT_DAYS)
  }

  const rounds = startRounds(async () => {
    try {
      await purge()
      const due = await claimDeliveries(db, MAX_AT_ONCE, LEASE_SECONDS)
      const outcomes = await Promise.allSettled(due.map(deliver))
      for (const outcome of outcomes) {
        // What could not even be put back comes again when its lease ends.
        if (outcome.status === 'rejected')
          logger.warn({ err: outcome.reason as Error }, 'a notification was not settled')
      }
      return { pauseMs: due.length === MAX_AT_ONCE ? 0 : intervalMs, isPokable: true }
    } catch (error) {
      logger.warn({ err: error }, 'notifications could not be looked for')
      return { pauseMs: intervalMs, isPokable: false }
    }
  })
  return {
    poke: rounds.poke,
    async stop() {
      stopping.abort()
      await rounds.stop()
    },
  }
}

class RefusedPost extends Error {
  readonly status: number
  constructor(status: number) {
    super(`the contact answered ${status}`)
    this.status = status
  }
}
