/** Changes of a profile by the user or a platform administrator. Only platform administrators change the role. */
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { AccessPolicy, UserPrincipal } from '../access/index.ts'
import type { ChangeDeps } from './changes.ts'
import { changeUser } from './changes.ts'
import { requireEmail, requirePicture, requireUsername } from './identity.ts'
import { dropMailedTokens } from './mailed-tokens.ts'
import type { UserChange, UserRecord } from './repository.ts'
import { lockIsSolePlatformAdmin } from './repository.ts'
import { getUser, requireSelfOrAdmin } from './rules.ts'
import type { UserUpdate } from './schema.ts'

export type ProfileDeps = ChangeDeps & {
  database: Database
  access: AccessPolicy
  /** Called after the commit when the address has changed. */
  onNewEmail: (user: UserRecord) => void
}

/** Every method throws `not_found`, `forbidden` for other callers, `malformed` and `conflict`. */
export class Profiles {
  readonly #deps: ProfileDeps

  constructor(deps: ProfileDeps) {
    this.#deps = deps
  }

  update(caller: UserPrincipal, id: string, input: UserUpdate): Promise<UserRecord> {
    // It sets only known fields: a body can contain anything (decision 43).
    return this.#set(caller, id, 'user.update', {
      ...(input.first_name === undefined ? {} : { firstName: input.first_name }),
      ...(input.last_name === undefined ? {} : { lastName: input.last_name }),
      ...(input.name === undefined ? {} : { name: input.name === '' ? null : input.name }),
      ...(input.metadata === undefined ? {} : { metadata: input.metadata }),
      ...(input.private_metadata === undefined ? {} : { privateMetadata: input.private_metadata }),
    })
  }

  setTags(caller: UserPrincipal, id: string, tags: string[]): Promise<UserRecord> {
    return this.#set(caller, id, 'user.update_tags', { tags })
  }

  async setPicture(caller: UserPrincipal, id: string, url: string): Promise<UserRecord> {
    return await this.#set(caller, id, 'user.update_profile_picture', { profilePicture: requirePicture(url) })
  }

  async setUsername(caller: UserPrincipal, id: string, username: string): Promise<UserRecord> {
    return await this.#set(caller, id, 'user.update_username', { username: requireUsername(username, '/username') })
  }

  /** A new address is not verified, and links in older mails become invalid. */
  async setEmail(caller: UserPrincipal, id: string, email: string): Promise<UserRecord> {
    requireEmail(email)
    requireSelfOrAdmin(this.#deps.access, caller, await getUser(this.#deps.database.db, id))
    let isOther = false
    const updated = await changeUser(this.#deps, caller, id, 'user.update_email', async (tx, user) => {
      isOther = user.email?.toLowerCase() !== email.toLowerCase()
      if (!isOther) return { change: { email } }
      await dropMailedTokens(tx, user.key, 'recovery')
      await dropMailedTokens(tx, user.key, 'verification')
      return { change: { email, isVerified: false } }
    })
    if (isOther) this.#deps.onNewEmail(updated)
    return updated
  }

  /** Requires a platform administrator. Throws `invalid_state` for the last platform administrator. */
  async setRole(caller: UserPrincipal, id: string, role: 'user' | 'admin'): Promise<UserRecord> {
    const { key } = await getUser(this.#deps.database.db, id)
    this.#deps.access.requirePlatformAdmin(caller)
    return await changeUser(this.#deps, caller, id, 'user.update_role', async (tx, user) => {
      if (user.role === role) return undefined
      if (role === 'user' && user.status === 'enabled' && (await lockIsSolePlatformAdmin(tx, key)))
        throw new ServiceError('invalid_state', 'the user is the only platform administrator')
      return { change: { role } }
    })
  }

  async #set(caller: UserPrincipal, id: string, operation: string, change: UserChange): Promise<UserRecord> {
    requireSelfOrAdmin(this.#deps.access, caller, await getUser(this.#deps.database.db, id))
    return await changeUser(this.#deps, caller, id, operation, () => ({ change }))
  }
}
