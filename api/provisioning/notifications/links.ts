/** Sends confirmation links, within limits of the address and of the user. */
import type { Mailer, UserPrincipal } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import type { BucketRule, SharedLimits } from '#core/limits/index.ts'
import type { Confirmations } from './confirmation.ts'
import { createLimiter } from './limiter.ts'
import { recordLinkSent } from './repository.ts'

/** Limits of links to one address, and of links by one user. */
const PER_ADDRESS: BucketRule = { burst: 3, perMinute: 3 / 60 }
const PER_USER: BucketRule = { burst: 20, perMinute: 20 / 60 }

/** Sends a link. Resolves to 0, or to the milliseconds until the limits permit one. */
export type SendLink = (
  caller: Pick<UserPrincipal, 'id'>,
  subscription: { id: string; contact: string },
) => Promise<number>

export function createLinks(deps: {
  database: Database
  mailer: Mailer
  limits: SharedLimits | undefined
  confirmations: Confirmations
}): SendLink {
  const { database, mailer, limits, confirmations } = deps
  const addresses = createLimiter('confirm address', PER_ADDRESS, limits)
  const users = createLimiter('confirm user', PER_USER, limits)
  return async (caller, subscription) => {
    // The limit of the user is checked first, so that a limited user does not consume the limit of the address.
    const waitMs = (await users.take(caller.id)) || (await addresses.take(subscription.contact.toLowerCase()))
    if (waitMs > 0) return waitMs
    await recordLinkSent(database.db, subscription.id)
    void mailer.send(confirmations.mailFor(subscription, Date.now() / 1000))
    return 0
  }
}
