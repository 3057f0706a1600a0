/**
 * The mail queue. It is bounded and kept in memory: mails that are queued when the process stops are lost, and the log
 * contains their number. A failed mail is retried with growing delays, then logged. Neither text nor subject is logged.
 */
import type { Logger } from '#core/logging/index.ts'
import { removeSources } from '#core/metrics/index.ts'
import { sleep, withDeadline } from '#core/time.ts'
import { isMailAddress } from './address.ts'
import { MAIL_METRICS } from './metrics.ts'
import type { Mail } from './compose.ts'
import type { MailTransport } from './transport.ts'

export type Mailer = {
  /** False: mails become files, and reach nobody by themselves. */
  readonly hasServer: boolean
  /** Queues a mail to one address. Resolves to true when it was sent, to false when it was given up. Never rejects. */
  send(mail: Mail): Promise<boolean>
  /** Makes one attempt, for callers that store the mail and retry themselves. Rejects with the error. */
  attempt(mail: Mail): Promise<void>
  stop(): Promise<void>
}

export type MailerOptions = {
  transport: MailTransport
  logger: Logger
  /** Default: true. */
  hasServer?: boolean
  /** Delays before the second and later attempts. Tests shorten them. */
  retryDelaysMs?: readonly number[]
}

/** Maximum number of mails that wait or are being sent. */
const MAX_MAILS = 1000
/** Maximum number of mails that are sent concurrently. */
const MAX_SENDING = 4
const RETRY_DELAYS_MS: readonly number[] = [2000, 15_000, 60_000, 300_000, 1_800_000]
/** Deadline of one attempt, including all steps of SMTP. */
const ATTEMPT_DEADLINE_MS = 60_000
/** Time that running attempts get when the process stops. */
const STOP_GRACE_MS = 3000

export function createMailer({
  transport,
  logger,
  hasServer = true,
  retryDelaysMs = RETRY_DELAYS_MS,
}: MailerOptions): Mailer {
  const stopping = new AbortController()
  const breaking = new AbortController()
  const held = new Set<Promise<boolean>>()
  const sending = new Set<Promise<void>>()
  const waiting: (() => void)[] = []
  let free = MAX_SENDING
  const sources = [MAIL_METRICS.waiting.fromValue(() => held.size), MAIL_METRICS.limit.fromValue(() => MAX_MAILS)]

  async function attempt(mail: Mail): Promise<void> {
    if (free > 0) free -= 1
    else await new Promise<void>((resolve) => void waiting.push(resolve))
    try {
      stopping.signal.throwIfAborted()
      const signal = AbortSignal.any([breaking.signal, AbortSignal.timeout(ATTEMPT_DEADLINE_MS)])
      const work = withDeadline(transport.deliver(mail, signal), ATTEMPT_DEADLINE_MS, 'sending a mail')
      sending.add(work)
      await work.finally(() => sending.delete(work))
    } finally {
      const next = waiting.shift()
      if (next === undefined) free += 1
      else next()
    }
  }

  async function deliver(mail: Mail): Promise<boolean> {
    for (let failures = 0; ; failures++) {
      try {
        await attempt(mail)
        MAIL_METRICS.mails.add({ outcome: 'sent' })
        return true
      } catch (error) {
        if (stopping.signal.aborted) return false
        const delayMs = isRefused(error) ? undefined : retryDelaysMs[failures]
        const facts = { to: mail.to, attempts: failures + 1, ...reasonOf(error) }
        MAIL_METRICS.mails.add({ outcome: delayMs === undefined ? 'given_up' : 'retried' })
        if (delayMs === undefined) {
          logger.error(facts, 'failed to send a mail; giving up')
          return false
        }
        logger.warn({ ...facts, retryInMs: delayMs }, 'failed to send a mail; retrying')
        await sleep(delayMs, stopping.signal).catch(() => undefined)
      }
    }
  }

  return {
    hasServer,
    async send(mail) {
      if (!isMailAddress(mail.to)) {
        MAIL_METRICS.mails.add({ outcome: 'dropped' })
        logger.error('dropped a mail: the recipient is not a valid address')
        return false
      }
      if (held.size >= MAX_MAILS || stopping.signal.aborted) {
        MAIL_METRICS.mails.add({ outcome: 'dropped' })
        logger.error(
          { to: mail.to, waiting: held.size },
          'dropped a mail: the queue is full or the process is stopping',
        )
        return false
      }
      const work = deliver(mail)
      held.add(work)
      return await work.finally(() => held.delete(work))
    },
    async attempt(mail) {
      if (!isMailAddress(mail.to)) throw new Error('the recipient is not a valid address')
      await attempt(mail)
    },
    async stop() {
      const last = [...held]
      stopping.abort()
      for (const next of waiting.splice(0)) next()
      await withDeadline(Promise.allSettled(sending), STOP_GRACE_MS, 'the last mails').catch(() => undefined)
      breaking.abort()
      const outcomes = await Promise.all(last)
      const lost = outcomes.filter((hasLeft) => !hasLeft).length
      if (lost > 0) logger.error({ mails: lost }, 'dropped unsent mails: the process is stopping')
      transport.close()
      removeSources(sources)
    },
  }
}

/** The server rejected the recipient permanently (RFC 5321 section 4.2.1, 5yz), so a retry is useless. */
function isRefused(error: unknown): boolean {
  const { code, responseCode } = error as { code?: unknown; responseCode?: unknown }
  return code === 'EENVELOPE' && typeof responseCode === 'number' && responseCode >= 500
}

/** Fields for the log. The response of the mail server is omitted, because it can quote a link of the mail. */
function reasonOf(error: unknown): Record<string, unknown> {
  const { code, responseCode, message } = error as { code?: unknown; responseCode?: unknown; message?: unknown }
  return responseCode === undefined ? { code, reason: message } : { code, responseCode }
}
