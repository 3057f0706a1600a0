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
import { EmailVerification } from './email-verification.ts'
import { Listings } from './listing.ts'
import { Memberships } from './memberships.ts'
import { Profiles } from './profile.ts'
import { startPurge } from './purge.ts'
import type { InvitationRedemption } from './registration.ts'
import { Registration } from './registration.ts'
import { applyUniqueNamesSwitch, findUserByLogin } from './repository.ts'
import type { UserRecord } from './repository.ts'
import { Secrets } from './secrets.ts'
import { Statuses } from './status.ts'

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

export class UsersService {
  readonly registration: Registration
  readonly listings: Listings
  readonly memberships: Memberships
  readonly profiles: Profiles
  readonly statuses: Statuses
  readonly secrets: Secrets
  readonly verification: EmailVerification
  readonly #deps: UsersDeps
  #purge: PeriodicRounds | undefined

  constructor(deps: UsersDeps) {
    this.#deps = deps
    this.verification = new EmailVerification({ ...deps, isRequired: deps.requireVerifiedEmail })
    const mailNewAddress = (user: UserRecord) => this.verification.mailNewAddress(user)
    this.registration = new Registration({ ...deps, onCreated: mailNewAddress })
    this.listings = new Listings(deps)
    this.memberships = new Memberships(deps)
    this.profiles = new Profiles({ ...deps, onNewEmail: mailNewAddress })
    this.statuses = new Statuses(deps)
    this.secrets = new Secrets(deps)
  }

  async findLogin(login: string): Promise<LoginUser | undefined> {
    return await findUserByLogin(this.#deps.database.db, login)
  }

  /** Called once at the start: synchronizes the stored unique names with the setting. */
  async prepare(): Promise<void> {
    await applyUniqueNamesSwitch(this.#deps.database.db, this.#deps.uniqueNames)
  }

  /** Starts the removal of deleted users. `stop` ends it. */
  start(): void {
    this.#purge = startPurge(this.#deps)
  }

  async stop(): Promise<void> {
    await Promise.all([this.secrets.stop(), this.#purge?.stop()])
  }
}
