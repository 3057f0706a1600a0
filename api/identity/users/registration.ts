/** Creation of users: self-registration, by another user who becomes the owner, or by a platform administrator. */
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

export type Registration = {
  /** Throws `unauthenticated` without a caller when self-registration is disabled. It runs before the body is read. */
  requireMayRegister(caller: UserPrincipal | undefined): void
  /**
   * Self-registration without a caller. Throws `malformed`, `conflict`, and `unauthenticated` or `forbidden` for fields
   * that the caller may not set.
   */
  create(caller: UserPrincipal | undefined, input: NewUser, origin: Origin): Promise<UserRecord>
}

export type RegistrationDeps = {
  journal: Journal
  access: AccessPolicy
  allowSelfRegister: boolean
  uniqueNames: boolean
  passwordPattern: RegExp
  /** Called after the commit. */
  onCreated: (user: UserRecord) => void
}

export function createRegistration(deps: RegistrationDeps): Registration {
  const { journal, access, allowSelfRegister, uniqueNames, passwordPattern } = deps

  function requireMayRegister(caller: UserPrincipal | undefined): void {
    if (allowSelfRegister || caller !== undefined) return
    throw new ServiceError(
      'unauthenticated',
      'failed to perform authentication: self-registration is disabled, a platform administrator must create the user',
    )
  }

  return {
    requireMayRegister,
    async create(caller, input, origin) {
      const role = input.role ?? 'user'
      requireMayRegister(caller)
      if (role === 'admin' && caller === undefined)
        throw new ServiceError(
          'unauthenticated',
          'failed to perform authentication: the role requires a platform administrator',
        )
      const names = identityOf(input)
      const profilePicture = requirePicture(input.profile_picture ?? '')
      requirePassword(passwordPattern, input.credentials.secret, '/credentials/secret')
      if (caller !== undefined && (role === 'admin' || !allowSelfRegister)) access.requirePlatformAdmin(caller)
      const secretHash = await hashPassword(input.credentials.secret)
      const id = newId()
      const user = await journal.change(caller ?? 'system', async (tx, record) => {
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
            createdBy: caller?.id ?? null,
            isVerified: false,
          },
          uniqueNames,
        )
        record({
          operation: 'user.create',
          entityKeys: [created.key],
          attributes: { ...newUserFacts(created), ...(caller === undefined ? { address: origin.address } : {}) },
        })
        return created
      })
      deps.onCreated(user)
      return user
    },
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
