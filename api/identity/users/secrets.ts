/** Changes a password with the old one, or resets it with a mailed link (contract section 5). */
import type { Database, Transaction } from '#core/database/index.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { countRefusal } from '#core/metrics/index.ts'
import type { Origin, UserPrincipal } from '../access/index.ts'
import type { Mailer } from '../mail/index.ts'
import { hashPassword, verifyPassword } from '../passwords/index.ts'
import { LoginThrottle, networkOf } from '../throttle/index.ts'
import { deleteApiKeysOf } from '../keys/index.ts'
import { revokePatsOf } from '../pats/index.ts'
import { revokeSessionsOf } from '../tokens/index.ts'
import type { ChangeDeps } from './changes.ts'
import { changeUser } from './changes.ts'
import { dropMailedTokens, findMailedToken, issueMailedToken } from './mailed-tokens.ts'
import { recoveryMail } from './mails.ts'
import type { UserRecord } from './repository.ts'
import { findUserByEmail, lockUser } from './repository.ts'
import { getUser, requirePassword } from './rules.ts'

export type SecretsDeps = ChangeDeps & {
  database: Database
  mailer: Mailer
  publicUrl: string
  passwordPattern: RegExp
  logger: Logger
}

/** Maximum number of waiting requests. Above it all are rejected. */
const MAX_REQUESTS = 200

const WRONG_OLD = 'failed to perform authentication: wrong old_secret'
const WRONG_TOKEN = 'failed to perform authentication: the link is invalid, was already used or has expired'

export class Secrets {
  readonly #deps: SecretsDeps
  readonly #requests: { email: string; origin: Origin }[] = []
  #working: Promise<void> | undefined
  #isStopping = false
  readonly #throttle = new LoginThrottle()

  constructor(deps: SecretsDeps) {
    this.#deps = deps
    this.#working = undefined
  }

  /**
   * Changes the caller's password and ends their other sessions. Throws `malformed`, `unauthenticated` for a wrong old
   * password, and `rate_limited` after too many of those: an attacker with a stolen session must not be able to guess
   * the password.
   */
  async changeSecret(caller: UserPrincipal, oldSecret: string, newSecret: string): Promise<UserRecord> {
    const user = await getUser(this.#deps.database.db, caller.id)
    requirePassword(this.#deps.passwordPattern, newSecret, '/new_secret')
    await this.#requireOldSecret(caller, user, oldSecret)
    const secretHash = await hashPassword(newSecret)
    return await changeUser(this.#deps, caller, user.id, 'user.reset_secret', async (tx, locked) => {
      // Of two concurrent changes the second has the wrong old password.
      if (locked.secretHash !== user.secretHash) throw new ServiceError('unauthenticated', WRONG_OLD)
      await revokeSessionsOf(tx, locked.key, caller.sessionId)
      await dropMailedTokens(tx, locked.key, 'recovery')
      return { change: { secretHash } }
    })
  }

  /**
   * Sends a link to the address if a user can log in with it. It returns before the look-up, so that neither the
   * response nor its time reveals whether the user exists. Throws `rate_limited` when too many requests wait.
   */
  requestReset(email: string, origin: Origin): void {
    if (this.#requests.length >= MAX_REQUESTS) {
      countRefusal('password_mail')
      throw new ServiceError('rate_limited', 'too many concurrent password reset requests: retry later', {
        retryAfterSeconds: 10,
      })
    }
    this.#requests.push({ email, origin })
    this.#working ??= this.#processRequests()
  }

  /** Throws `unauthenticated` unless the mailed token is valid. */
  async requireRecoveryToken(token: string): Promise<void> {
    await this.#userOf(token)
  }

  /**
   * Sets the password and ends every session, API key and personal access token, because an attacker may have created
   * them. The token becomes invalid. Throws `unauthenticated` and `malformed`.
   */
  async resetSecret(
    token: string,
    { password, confirmation }: { password: string; confirmation: string },
    origin: Origin,
  ): Promise<void> {
    const userId = await this.#userOf(token)
    if (password !== confirmation) throw refusedField('/confirm_password', 'must be the same as password')
    requirePassword(this.#deps.passwordPattern, password, '/password')
    const secretHash = await hashPassword(password)
    await changeUser(this.#deps, 'system', userId, 'user.reset_secret', async (tx, user) => {
      // Checked under the lock of the user: of two concurrent requests with one link the second finds it used.
      if ((await findMailedToken(tx, 'recovery', token)) === undefined)
        throw new ServiceError('unauthenticated', WRONG_TOKEN)
      await dropMailedTokens(tx, user.key, 'recovery')
      await endCredentialsOf(tx, user.key)
      return { change: { secretHash }, attributes: { address: origin.address } }
    })
  }

  async stop(): Promise<void> {
    this.#isStopping = true
    this.#throttle.stop()
    await this.#working
  }

  async #sendLink(email: string, origin: Origin): Promise<void> {
    const issued = await this.#deps.journal.change('system', async (tx, record) => {
      const found = await findUserByEmail(tx, email)
      const user = found === undefined ? undefined : await lockUser(tx, found.id)
      if (user === undefined || user.email === null || user.status !== 'enabled') return undefined
      const token = await issueMailedToken(tx, user.key, 'recovery', user.email)
      if (token === undefined) return undefined
      record({
        operation: 'user.send_password_reset',
        entityKeys: [user.key],
        attributes: { id: user.id, address: origin.address },
      })
      return { to: user.email, token }
    })
    if (issued !== undefined) void this.#deps.mailer.send(recoveryMail(this.#deps.publicUrl, issued.to, issued.token))
  }

  async #processRequests(): Promise<void> {
    for (let next = this.#requests.shift(); next !== undefined && !this.#isStopping; next = this.#requests.shift()) {
      const { email, origin } = next
      await this.#sendLink(email, origin).catch((error: unknown) =>
        this.#deps.logger.error({ err: error }, 'failed to create a password reset link; the user can request another'),
      )
    }
    this.#working = undefined
  }

  async #userOf(token: string): Promise<string> {
    const found = await findMailedToken(this.#deps.database.db, 'recovery', token)
    if (found === undefined) throw new ServiceError('unauthenticated', WRONG_TOKEN)
    return found.userId
  }

  async #requireOldSecret(caller: UserPrincipal, user: UserRecord, oldSecret: string): Promise<void> {
    const address = networkOf(caller.origin?.address ?? '')
    const admission = await this.#throttle.admit({ account: user.id, address, isKnown: false })
    let isRight: boolean
    try {
      isRight = await verifyPassword(oldSecret, user.secretHash)
    } catch (error) {
      admission.release()
      throw error
    }
    if (isRight) return admission.release()
    admission.fail()
    throw new ServiceError('unauthenticated', WRONG_OLD)
  }
}

/** Revokes all credentials of the user. */
async function endCredentialsOf(tx: Transaction, userKey: number): Promise<void> {
  await revokeSessionsOf(tx, userKey)
  await deleteApiKeysOf(tx, userKey)
  await revokePatsOf(tx, userKey)
}
