/** Creation of users: self-registration, by another user who becomes the owner, or by a platform administrator. */
import type { Transaction } from '#core/database/index.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { newId } from '#core/ids.ts'
import type { AccessPolicy, Origin, UserPrincipal } from '../access/index.ts'
import type { Journal } from '../journal/index.ts'
import { hashPassword } from '../passwords/index.ts'
import { newUserFacts } from './changes.ts'
import { requireEmail, requirePicture, requireUsername } from './identity.ts'
import type { UserRecord } from './repository.ts'
import { insertUser } from './repository.ts'
import { requirePassword } from './rules.ts'
import type { NewUser } from './schema.ts'

/** The part of invitations that a registration needs. */
export type InvitationRedemption = {
  /** Throws `unauthenticated` for a token that is unknown, used or expired. Returns the invited address in lower case. */
  requireToken(token: string): Promise<{ email: string }>
  /**
   * Turns the invitation into one of the new user, in the transaction of the registration. Returns the id of the domain. Throws
   * `unauthenticated` as `requireToken`, also when the domain is not enabled.
   */
  redeem(tx: Transaction, token: string, userKey: number): Promise<{ domainId: string }>
}

export type RegistrationDeps = {
  journal: Journal
  access: AccessPolicy
  allowSelfRegister: boolean
  uniqueNames: boolean
  passwordPattern: RegExp
  invitations: InvitationRedemption
  /** Called after the commit. */
  onCreated: (user: UserRecord) => void
}

export class Registration {
  readonly #deps: RegistrationDeps

  constructor(deps: RegistrationDeps) {
    this.#deps = deps
  }

  /** Throws `unauthenticated` without a caller when self-registration is disabled. It runs before the body is read. */
  requireMayRegister(caller: UserPrincipal | undefined): void {
    if (this.#deps.allowSelfRegister || caller !== undefined) return
    throw new ServiceError(
      'unauthenticated',
      'failed to perform authentication: self-registration is disabled, a platform administrator must create the user',
    )
  }

  /**
   * Self-registration without a caller. Throws `malformed`, `conflict`, and `unauthenticated` or `forbidden` for fields
   * that the caller may not set.
   */
  async create(caller: UserPrincipal | undefined, input: NewUser, origin: Origin): Promise<UserRecord> {
    const role = input.role ?? 'user'
    this.requireMayRegister(caller)
    this.#requireNoAdmin(caller, role)
    const facts = caller === undefined ? { address: origin.address } : {}
    return await this.#register(caller, { input, role, isVerified: false }, async () => facts)
  }

  /** Throws `unauthenticated` for the token of a mailed invitation that is not valid. It runs before the body is read. */
  async requireInvitation(token: string): Promise<void> {
    await this.#deps.invitations.requireToken(token)
  }

  /**
   * Registration of an invited address, which is verified by its mail. The invitation then waits for the user. Throws `malformed`
   * for another address, and the same errors as `create` and `requireInvitation`.
   */
  async createInvited(token: string, input: NewUser, origin: Origin): Promise<UserRecord> {
    const role = input.role ?? 'user'
    this.#requireNoAdmin(undefined, role)
    const { email } = await this.#deps.invitations.requireToken(token)
    if (identityOf(input).email?.toLowerCase() !== email) throw refusedField('/email', 'must be the invited address')
    return await this.#register(undefined, { input, role, isVerified: true }, async (tx, user) => {
      const { domainId } = await this.#deps.invitations.redeem(tx, token, user.key)
      return { address: origin.address, invited_to: domainId }
    })
  }

  /** `complete`: what else the transaction does. Returns attributes of the journal entry. */
  async #register(
    author: UserPrincipal | undefined,
    { input, role, isVerified }: { input: NewUser; role: 'user' | 'admin'; isVerified: boolean },
    complete: (tx: Transaction, user: UserRecord) => Promise<Record<string, unknown>>,
  ): Promise<UserRecord> {
    const names = identityOf(input)
    const profilePicture = requirePicture(input.profile_picture ?? '')
    requirePassword(this.#deps.passwordPattern, input.credentials.secret, '/credentials/secret')
    if (author !== undefined && (role === 'admin' || !this.#deps.allowSelfRegister))
      this.#deps.access.requirePlatformAdmin(author)
    const secretHash = await hashPassword(input.credentials.secret)
    const id = newId()
    const user = await this.#deps.journal.change(author ?? 'system', async (tx, record) => {
      const created = await insertUser(
        tx,
        {
          id,
          ...names,
          secretHash,
          tags: input.tags ?? [],
          metadata: input.metadata ?? {},
          privateMetadata: input.private_metadata ?? {},
          profilePicture,
          role,
          status: input.status ?? 'enabled',
          createdBy: author?.id ?? null,
          isVerified,
        },
        this.#deps.uniqueNames,
      )
      record({
        operation: 'user.create',
        entityKeys: [created.key],
        attributes: { ...newUserFacts(created), ...(await complete(tx, created)) },
      })
      return created
    })
    if (!isVerified) this.#deps.onCreated(user)
    return user
  }

  #requireNoAdmin(caller: UserPrincipal | undefined, role: string): void {
    if (role === 'admin' && caller === undefined)
      throw new ServiceError(
        'unauthenticated',
        'failed to perform authentication: the role requires a platform administrator',
      )
  }
}

type Names = Pick<UserRecord, 'firstName' | 'lastName' | 'name' | 'email' | 'username'>

const required = (path: string) => refusedField(path, 'is required')

/** Reads the current format, or the legacy one with `name` and `credentials.identity` (decision 50). */
function identityOf(input: NewUser): Names {
  const { identity } = input.credentials
  const isOlder =
    identity !== undefined ||
    (input.name !== undefined && input.first_name === undefined && input.last_name === undefined)
  return isOlder ? olderIdentityOf(input) : newerIdentityOf(input)
}

function olderIdentityOf(input: NewUser): Names {
  const { identity, username } = input.credentials
  const login = identity ?? input.email ?? username
  if (login === undefined || login === '') throw required('/credentials/identity')
  const isEmail = login.includes('@')
  return {
    firstName: input.first_name || null,
    lastName: input.last_name || null,
    name: input.name || null,
    email: isEmail ? requireEmail(login) : input.email === undefined ? null : requireEmail(input.email),
    username: isEmail ? (username === undefined ? null : requireUsername(username)) : requireUsername(login),
  }
}

function newerIdentityOf(input: NewUser): Names {
  const { username } = input.credentials
  if (input.first_name === undefined || input.first_name === '') throw required('/first_name')
  if (input.last_name === undefined || input.last_name === '') throw required('/last_name')
  if (input.email === undefined || input.email === '') throw required('/email')
  if (username === undefined || username === '') throw required('/credentials/username')
  return {
    firstName: input.first_name,
    lastName: input.last_name,
    name: input.name ?? null,
    email: requireEmail(input.email),
    username: requireUsername(username),
  }
}
