/** How many mails with invitations are sent, so that Skein cannot be used to flood mailboxes: per process, and over all that share limits. */
import { ServiceError } from '#core/errors/index.ts'
import { createMemoryLimits } from '#core/limits/index.ts'
import type { BucketRule, SharedLimits } from '#core/limits/index.ts'

/** Three mails to an address in five minutes, as for the other links. */
const RECIPIENT: BucketRule = { burst: 3, perMinute: 0.6 }
/** The limit of one sender, in all domains. */
const SENDER: BucketRule = { burst: 50, perMinute: 1 }

export type MailLimit = {
  /** Throws `rate_limited`. The caller calls the returned function when no mail is sent after all. */
  take(senderId: string, email: string): Promise<() => void>
}

export function createMailLimit(shared: SharedLimits | undefined): MailLimit {
  const own = createMemoryLimits()
  return {
    async take(senderId, email) {
      const buckets = [
        { name: `invitation to\n${email}`, rule: RECIPIENT },
        { name: `invitation of\n${senderId}`, rule: SENDER },
      ]
      const refuse = (waitMs: number) => {
        throw new ServiceError(
          'rate_limited',
          'too many invitations were mailed by you or to this address: retry later',
          {
            retryAfterSeconds: Math.max(1, Math.ceil(waitMs / 1_000)),
          },
        )
      }
      const ownMs = (await own.take(buckets)) ?? 0
      if (ownMs > 0) refuse(ownMs)
      // Without an answer, the limits of this process alone apply.
      const sharedMs = (await shared?.take(buckets)) ?? 0
      if (sharedMs > 0) {
        own.refund(buckets)
        refuse(sharedMs)
      }
      return () => {
        own.refund(buckets)
        shared?.refund(buckets)
      }
    },
  }
}
