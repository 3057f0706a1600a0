/**
 * Verification of email addresses by a mailed link, and the restrictions of unverified users if the settings require it
 * (contract section 5).
 */
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { FactCache } from '#core/fact-cache.ts'
import { createFactCache } from '#core/fact-cache.ts'
import type { Logger } from '#core/logging/index.ts'
import { countRefusal } from '#core/metrics/index.ts'
import type { Origin, UserPrincipal } from '../access/index.ts'
import type { Mailer } from '../mail/index.ts'
import type { ChangeDeps } from './changes.ts'
import { changeUser } from './changes.ts'
import { findMailedToken, issueMailedToken } from './mailed-tokens.ts'
import { verificationMail } from './mails.ts'
import type { UserRecord } from './repository.ts'
import { findUser, lockUser } from './repository.ts'
import { getUser } from './rules.ts'

export type EmailVerificationDeps = ChangeDeps & {
  database: Database
  mailer: Mailer
  publicUrl: string
  isRequired: boolean
  logger: Logger
}

const MAX_USERS = 50_000

export class EmailVerification {
  readonly #deps: EmailVerificationDeps
  readonly #verified: FactCache<boolean>

  constructor(deps: EmailVerificationDeps) {
    this.#deps = deps
    this.#verified = createFactCache({ maxEntries: MAX_USERS, isFresh: deps.journal.isFresh })
  }

  /**
   * Sends the caller a link unless their address is verified. Throws `unprocessable` without an address,
   * `rate_limited`.
   */
  async sendVerification(caller: UserPrincipal): Promise<'sent' | 'verified already'> {
    const user = await getUser(this.#deps.database.db, caller.id)
    if (user.email === null)
      throw new ServiceError('unprocessable', 'the user has no email address: set one before the verification')
    if (user.verifiedAt !== null) return 'verified already'
    if ((await this.#send(caller, user.id)) === true) return 'sent'
    countRefusal('verification_mail')
    throw new ServiceError('rate_limited', 'the link was already sent: check the mailbox or retry later', {
      retryAfterSeconds: 300,
    })
  }

  /** Sends the link to a new address if the settings require verification. */
  mailNewAddress(user: UserRecord): void {
    if (!this.#deps.isRequired || user.email === null || user.status !== 'enabled') return
    void this.#send('system', user.id).catch((error: unknown) =>
      this.#deps.logger.error({ err: error }, 'failed to create a verification link; the user can request another'),
    )
  }

  /**
   * Verifies the address. The link can be opened repeatedly until it expires, because virus scanners open it first.
   * Throws `unauthenticated`.
   */
  async verifyEmail(token: string, origin: Origin): Promise<void> {
    const found = await findMailedToken(this.#deps.database.db, 'verification', token)
    const wrong = new ServiceError(
      'unauthenticated',
      'failed to perform authentication: the link has expired or belongs to another address',
    )
    if (found === undefined) throw wrong
    await changeUser(this.#deps, 'system', found.userId, 'user.verify_email', async (tx, user) => {
      if ((await findMailedToken(tx, 'verification', token)) === undefined) throw wrong
      return user.verifiedAt === null
        ? { change: { isVerified: true }, attributes: { address: origin.address } }
        : undefined
    })
  }

  /** Throws `forbidden` when the settings require a verified address and the caller has none. */
  async requireVerified(caller: UserPrincipal): Promise<void> {
    if (!this.#deps.isRequired) return
    const isVerified = await this.#verified.get(caller.id, async () => {
      const user = await findUser(this.#deps.database.db, caller.id)
      return { value: user !== undefined && user.verifiedAt !== null, dependsOn: [caller.key] }
    })
    if (!isVerified)
      throw new ServiceError(
        'forbidden',
        'failed to perform authorization: the email address is not verified: use POST /users/send-verification to get a link',
      )
  }

  invalidate(entityKeys: readonly number[]): void {
    this.#verified.invalidate(entityKeys)
  }

  invalidateAll(): void {
    this.#verified.invalidateAll()
  }

  /**
   * Creates a token and queues the mail. Undefined when too many mails were sent, or the address is already verified.
   */
  async #send(sender: UserPrincipal | 'system', userId: string): Promise<true | undefined> {
    const issued = await this.#deps.journal.change(sender, async (tx, record) => {
      const user = await lockUser(tx, userId)
      if (user === undefined || user.email === null || user.verifiedAt !== null) return undefined
      const token = await issueMailedToken(tx, user.key, 'verification', user.email)
      if (token === undefined) return undefined
      record({ operation: 'user.send_verification', entityKeys: [user.key], attributes: { id: user.id } })
      return { to: user.email, token }
    })
    if (issued === undefined) return undefined
    void this.#deps.mailer.send(verificationMail(this.#deps.publicUrl, issued.to, issued.token))
    return true
  }
}
