/**
 * Mails on their way. The queue is bounded and lives in memory: what a process holds when it ends is lost, and the log
 * says how many. A mail that fails is tried again with growing pauses, then logged. Neither text nor subject is logged.
 */
import type { Logger } from '#core/logging/index.ts'
import { sleep, withDeadline } from '#core/time.ts'
import { isMailAddress } from './address.ts'
import type { Mail } from './compose.ts'
import type { MailTransport } from './transport.ts'

export type Mailer = {
  /**
   * Sends a mail to one address, in the background of whoever does not wait: resolves to true when it has left, to false
   * when it was given up. Never rejects.
   */
  send(mail: Mail): Promise<boolean>
  /** One attempt, for whoever keeps the mail and tries again himself; rejects with what went wrong. */
  attempt(mail: Mail): Promise<void>
  stop(): Promise<void>
}

export type MailerOptions = {
  transport: MailTransport
  logger: Logger
  /** Pauses before the second attempt, the third, and so on; tests shorten them. */
  retryDelaysMs?: readonly number[]
}

/** Mails that wait or are being sent. */
const MAX_MAILS = 1000
/** Mails that are being sent at once. */
const MAX_SENDING = 4
const RETRY_DELAYS_MS: readonly number[] = [2000, 15_000, 60_000, 300_000, 1_800_000]
/** One attempt, with everything that the server asks. */
const ATTEMPT_DEADLINE_MS = 60_000
/** What is being sent when the process stops gets so long. */
const STOP_GRACE_MS = 3000

export function createMailer({ transport, logger, retryDelaysMs = RETRY_DELAYS_MS }: MailerOptions): Mailer {
  const stopping = new AbortController()
  const breaking = new AbortController()
  const held = new Set<Promise<boolean>>()
  const sending = new Set<Promise<void>>()
  const waiting: (() => void)[] = []
  let free = MAX_SENDING

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
        return true
      } catch (error) {
        if (stopping.signal.aborted) return false
        const delayMs = isRefused(error) ? undefined : retryDelaysMs[failures]
        const facts = { to: mail.to, attempts: failures + 1, ...reasonOf(error) }
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
    async send(mail) {
      if (!isMailAddress(mail.to)) {
        logger.error('a mail was not sent: the recipient is not a valid address')
        return false
      }
      if (held.size >= MAX_MAILS || stopping.signal.aborted) {
        logger.error(
          { to: mail.to, waiting: held.size },
          'a mail was not sent: the queue is full or the process is stopping',
        )
        return false
      }
      const work = deliver(mail)
      held.add(work)
      return await work.finally(() => held.delete(work))
    },
    async attempt(mail) {
      if (!isMailAddress(mail.to)) throw new Error('the recipient is no address')
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
      if (lost > 0) logger.error({ mails: lost }, 'mails were lost: the process stopped before they could be sent')
      transport.close()
    },
  }
}

/** The recipient does not exist or is not wanted (RFC 5321 section 4.2.1, 5yz): another attempt changes nothing. */
function isRefused(error: unknown): boolean {
  const { code, responseCode } = error as { code?: unknown; responseCode?: unknown }
  return code === 'EENVELOPE' && typeof responseCode === 'number' && responseCode >= 500
}

/** What the log may say. The answer of a mail server is left out: it may quote the link that it objects to. */
function reasonOf(error: unknown): Record<string, unknown> {
  const { code, responseCode, message } = error as { code?: unknown; responseCode?: unknown; message?: unknown }
  return responseCode === undefined ? { code, reason: message } : { code, responseCode }
}
