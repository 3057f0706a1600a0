/**
 * Invitations by mail, for people without an account (decision 103): the link of the mail leads to a registration with the
 * address, and the invitation waits for the new user. The database contains the hash of the token.
 */
import { createHash } from 'node:crypto'
import type { Database, Queryable, Transaction } from '#core/database/index.ts'
import { ServiceError, refusedField, takenField } from '#core/errors/index.ts'
import { newToken } from '#core/ids.ts'
import { lockDomain } from '../../domains/index.ts'
import type { Mail } from '../../mail/index.ts'
import { isMailAddress } from '../../mail/index.ts'
import type { InvitationRedemption } from '../../users/index.ts'
import { countMailed, findMailed, saveMailed, takeMailed } from './repository.ts'
import type { MailedInvitation } from './repository.ts'
import { INVITATION_LIFETIME_HOURS } from '../invitation.ts'
import { saveInvitation } from '../repository.ts'

/** Maximum number of addresses of a domain that are invited at a time, so that Skein cannot be used to flood mailboxes. */
const MAX_MAILED = 100
/** Longer text is rejected before it is hashed. */
const MAX_TOKEN_CHARS = 128

const hashOf = (token: string) => createHash('sha256').update(token).digest()

/** Addresses are compared in lower case. Throws `malformed`. */
export function requireAddress(email: string): string {
  if (!isMailAddress(email)) throw refusedField('/email', 'must be an email address')
  return email.toLowerCase()
}

const wrongToken = () =>
  new ServiceError(
    'unauthenticated',
    'failed to perform authentication: the link of the invitation has expired, was used or was withdrawn',
  )

async function findByToken(db: Queryable, token: string) {
  const found = token.length > MAX_TOKEN_CHARS ? undefined : await findMailed(db, hashOf(token))
  if (found === undefined) throw wrongToken()
  return found
}

export function createRedemption(database: Database): InvitationRedemption {
  return {
    requireToken: async (token) => await findByToken(database.db, token),
    async redeem(tx, token, userKey) {
      // Locks the domain first, then the invitation, in the same order as every other transaction.
      const { domainKey } = await findByToken(tx, token)
      const domain = await lockDomain(tx, domainKey)
      const taken = domain?.status === 'enabled' ? await takeMailed(tx, hashOf(token)) : undefined
      if (domain === undefined || taken === undefined) throw wrongToken()
      const { email: _, ...invitation } = taken
      await saveInvitation(
        tx,
        { ...invitation, userKey, lifetimeHours: INVITATION_LIFETIME_HOURS },
        { isResent: false },
      )
      return { domainId: domain.id }
    },
  }
}

/**
 * Stores the invitation and returns the token of its mail. The caller holds the lock of the domain. Throws `conflict` for an address
 * that is invited, unless `isResent` renews it with a new token, and `rate_limited` above the limit of a domain.
 */
export async function issueMailed(
  tx: Transaction,
  invitation: MailedInvitation,
  { isResent }: { isResent: boolean },
): Promise<string> {
  const { total, isInvited } = await countMailed(tx, invitation.domainKey, invitation.email)
  if (isInvited && !isResent)
    throw takenField(
      '/email',
      'the address is already invited to the domain: set resend to renew the invitation',
      'is already invited',
    )
  if (!isInvited && total >= MAX_MAILED)
    throw new ServiceError(
      'rate_limited',
      `at most ${MAX_MAILED} invitations by mail wait in a domain: withdraw some`,
      {
        retryAfterSeconds: 3_600,
      },
    )
  const token = newToken()
  await saveMailed(tx, { ...invitation, tokenHash: hashOf(token), lifetimeHours: INVITATION_LIFETIME_HOURS })
  return token
}

/** Plain ASCII without names, like every mail. The token is behind a `#`, so that no log of a server contains it. */
export function invitationMail(publicUrl: string, to: string, token: string): Mail {
  const fragment = new URLSearchParams({ invitation: token, email: to }).toString()
  return {
    to,
    subject: 'You are invited to Skein',
    text: [
      'You are invited to a domain in Skein. Open this link within',
      `${INVITATION_LIFETIME_HOURS / 24} days to create your account, and accept or reject the invitation there:`,
      '',
      `${publicUrl}/console/sign-up#${fragment}`,
      '',
      'If you do not know why, ignore this mail.',
    ].join('\n'),
  }
}
