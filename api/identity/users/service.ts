/**
 * User accounts (specification section 4 Users, contract section 5, decisions 28, 29, 46, 48, 50, 51): composition of
 * the parts.
 */
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { PeriodicRounds } from '#core/rounds.ts'
import type { AccessPolicy } from '../access/index.ts'
import type { Journal } from '../journal/index.ts'
import type { Mailer } from '../mail/index.ts'
import type { LoginUser } from '../tokens/index.ts'
import type { EmailVerification } from './email-verification.ts'
import { createEmailVerification } from './email-verification.ts'
import type { Listings } from './listing.ts'
import { createListings } from './listing.ts'
import type { Memberships } from './memberships.ts'
import { createMemberships } from './memberships.ts'
import type { Profiles } from './profile.ts'
import { createProfiles } from './profile.ts'
import { startPurge } from './purge.ts'
import type { InvitationRedemption, Registration } from './registration.ts'
import { createRegistration } from './registration.ts'
import { applyUniqueNamesSwitch, findUserByLogin } from './repository.ts'
import type { Secrets } from './secrets.ts'
import { createSecrets } from './secrets.ts'
import type { Statuses } from './status.ts'
import { createStatuses } from './status.ts'

export type UsersService = Registration &
  Listings &
  Memberships &
  Profiles &
  Statuses &
  Secrets &
  EmailVerification & {
    findLogin(login: string): Promise<LoginUser | undefined>
    /** Called once at the start: synchronizes the stored unique names with the setting. */
    prepare(): Promise<void>
    /** Starts the removal of deleted users. `stop` ends it. */
    start(): void
  }

export type UsersDeps = {
  database: Database
  journal: Journal
  access: AccessPolicy
  mailer: Mailer
  logger: Logger
  /** Base of the links in mails. */
  publicUrl: string
  allowSelfRegister: boolean
  uniqueNames: boolean
  passwordPattern: RegExp
  requireVerifiedEmail: boolean
  invitations: InvitationRedemption
}

export function createUsersService(deps: UsersDeps): UsersService {
  const { database, uniqueNames } = deps
  const verification = createEmailVerification({ ...deps, isRequired: deps.requireVerifiedEmail })
  const secrets = createSecrets(deps)
  let purge: PeriodicRounds | undefined
  return {
    ...createRegistration({ ...deps, onCreated: verification.mailNewAddress }),
    ...createListings(deps),
    ...createMemberships(deps),
    ...createProfiles({ ...deps, onNewEmail: verification.mailNewAddress }),
    ...createStatuses(deps),
    ...secrets,
    ...verification,
    findLogin: (login) => findUserByLogin(database.db, login),
    prepare: () => applyUniqueNamesSwitch(database.db, uniqueNames),
    start() {
      purge = startPurge(deps)
    },
    async stop() {
      await Promise.all([secrets.stop(), purge?.stop()])
    },
  }
}
