/** Composition of the room: authentication, access, users and domains. */
import type { FastifyRequest } from 'fastify'
import type { Bus } from '#core/bus/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import type { Keyring } from '#core/keyring/index.ts'
import type { SharedLimits } from '#core/limits/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { accessRoutes, AccessPolicy, createExplainer } from './access/index.ts'
import { assignmentRoutes, AssignmentsService, userGroupRoutes } from './assignments/index.ts'
import type { IdentityConfig } from './config.ts'
import { startCredentials } from './credentials.ts'
import { DomainStatusService, DomainsService, domainRoutes } from './domains/index.ts'
import { GroupsService, GroupHierarchyService, MovesService, groupRoutes, hierarchyRoutes } from './groups/index.ts'
import { InvitationsService, createRedemption, invitationRoutes, legacyInvitationRoutes } from './invitations/index.ts'
import { JournalService, journalRoutes, startJournal } from './journal/index.ts'
import type { Journal } from './journal/index.ts'
import { startCountMerger, warnOfSlowSearches } from './listing/index.ts'
import { startMailer } from './mail/index.ts'
import type { Mailer } from './mail/index.ts'
import { Quotas, QuotasService, defaultsOf, quotaRoutes } from './quotas/index.ts'
import { MembershipsService, RolesService, roleRoutes } from './roles/index.ts'
import { bearerOf, originOf } from './tokens/index.ts'
import type { Logins, PageLogins } from './tokens/index.ts'
import {
  accountRoutes,
  UsersService,
  ensureFirstAdmin,
  mailRoutes,
  requireVerifiedFor,
  userRoutes,
} from './users/index.ts'
import type { FirstAdmin } from './users/index.ts'

export type IdentityDeps = {
  config: IdentityConfig
  database: Database
  bus: Bus
  keyring: Keyring
  logger: Logger
  dataDir: string
  /** Limits that all nodes share. */
  limits?: SharedLimits | undefined
  /** Interval at which changes of other processes are read. Tests shorten it. */
  tailIntervalMs?: number
}

export type Identity = {
  readonly access: AccessPolicy
  readonly journal: Journal
  readonly groups: GroupsService
  /** The quotas in force. */
  readonly quotas: Quotas
  /** Logins and tokens. Authentication checks the verified email address if the settings require it. */
  readonly tokens: Logins
  readonly pages: PageLogins
  readonly mailer: Mailer
  readonly routes: RoutePlugin
  readonly firstAdmin: FirstAdmin
  /** The `authenticate` hook of the HTTP server: sets `request.principal`. */
  authenticate(request: FastifyRequest): Promise<void>
  stop(): Promise<void>
}

/** First path segments of the API. The route of a domain must not shadow them (decisions 23 and 83). */
export const RESERVED_ROUTES: ReadonlySet<string> = new Set(
  'api auth bootstrap c certs channels clients connect console disconnect docs domains events groups health http invitations jobs journal keys m mapping metrics modules mqtt openapi.json overview password pats proplets proxy publish ready roles runs search stream subscriptions tasks things users verify-email workers workflows ws'.split(
    ' ',
  ),
)

function compilePattern(pattern: string): RegExp {
  try {
    return new RegExp(pattern, 'su')
  } catch (error) {
    throw new ServiceError(
      'malformed',
      `SKEIN_PASSWORD_PATTERN must be a regular expression: ${(error as Error).message}`,
      { cause: error },
    )
  }
}

export async function startIdentity(deps: IdentityDeps): Promise<Identity> {
  const { config, database, bus, keyring, logger, dataDir } = deps
  const passwordPattern = compilePattern(config.passwordPattern)
  const mailer = startMailer(config, dataDir, logger)
  const journal = await startJournal({
    database,
    bus,
    logger,
    ...(deps.tailIntervalMs === undefined ? {} : { tailIntervalMs: deps.tailIntervalMs }),
  })
  try {
    const access = AccessPolicy.create({ database, isFresh: journal.isFresh })
    const defaults = defaultsOf(config)
    const quotas = new Quotas({ db: database.db, logger, defaults })
    journal.listen(quotas)
    await quotas.load()
    const users = new UsersService({
      database,
      journal,
      access,
      mailer,
      logger,
      publicUrl: config.publicUrl,
      passwordPattern,
      allowSelfRegister: config.allowSelfRegister,
      uniqueNames: config.uniqueNames,
      requireVerifiedEmail: config.requireVerifiedEmail,
      invitations: createRedemption(database),
    })
    const credentials = await startCredentials({
      config,
      database,
      keyring,
      journal,
      access,
      findLogin: (login) => users.findLogin(login),
      limits: deps.limits,
    })
    /** Checks the verified email address, for transports whose tokens permit more than the user's own profile. */
    const tokens: Logins = {
      issue: (input, origin) => credentials.tokens.issue(input, origin),
      async authenticate(token, origin) {
        const principal = await credentials.tokens.authenticate(token, origin)
        await users.verification.requireVerified(principal)
        return principal
      },
    }
    const roles = new RolesService({ database, journal, access })
    const memberships = new MembershipsService({ database, journal, access })
    const domains = new DomainsService({ database, journal, access, quotas, reservedRoutes: RESERVED_ROUTES })
    const domainStatuses = new DomainStatusService({ database, journal, access })
    const invitations = new InvitationsService({
      database,
      journal,
      access,
      mailer,
      limits: deps.limits,
      publicUrl: config.publicUrl,
    })
    const groups = new GroupsService({ database, journal, access, quotas })
    const hierarchy = new GroupHierarchyService({ database, access })
    const moves = new MovesService({ database, journal, access })
    const assignments = new AssignmentsService({ database, journal, access, memberships })
    journal.listen(access)
    journal.listen(users.verification)
    await users.prepare()
    await warnOfSlowSearches(database.db, logger)
    const firstAdmin = await ensureFirstAdmin({
      database,
      journal,
      dataDir,
      email: config.adminEmail,
      username: config.adminUsername,
      secret: config.adminSecret,
      uniqueNames: config.uniqueNames,
      passwordPattern,
    })
    users.start()
    const counts = startCountMerger({ database, logger })
    return {
      access,
      journal,
      groups,
      quotas,
      tokens,
      pages: credentials.pagesWith((token, origin) => tokens.authenticate(token, origin)),
      mailer,
      firstAdmin,
      routes: async (app) => {
        await credentials.routes(app)
        await userRoutes(users, tokens)(app)
        await accountRoutes(users)(app)
        await mailRoutes(users)(app)
        await journalRoutes(new JournalService({ database, access }))(app)
        await domainRoutes(domains, domainStatuses)(app)
        await quotaRoutes(new QuotasService({ database, journal, access, quotas, defaults }))(app)
        await invitationRoutes(invitations)(app)
        await legacyInvitationRoutes(invitations)(app)
        await accessRoutes(createExplainer({ database, access }))(app)
        await roleRoutes(roles, memberships)(app)
        await groupRoutes(groups)(app)
        await hierarchyRoutes(hierarchy, moves)(app)
        await assignmentRoutes(assignments)(app)
        await userGroupRoutes(groups)(app)
      },
      async authenticate(request) {
        request.principal = await credentials.tokens.authenticate(bearerOf(request), originOf(request))
        await requireVerifiedFor(users, request)
      },
      async stop() {
        await counts.stop()
        await quotas.stop()
        await users.stop()
        await mailer.stop()
        await credentials.stop()
        await journal.stop()
      },
    }
  } catch (error) {
    await journal.stop()
    throw error
  }
}
