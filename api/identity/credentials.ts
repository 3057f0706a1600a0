/** Composition of authentication: signing keys, logins, API keys, personal access tokens and the login throttle. */
import type { Database } from '#core/database/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import type { Keyring } from '#core/keyring/index.ts'
import type { SharedLimits } from '#core/limits/index.ts'
import { registerRouteRules } from './access/index.ts'
import type { AccessPolicy } from './access/index.ts'
import type { IdentityConfig } from './config.ts'
import type { Journal } from './journal/index.ts'
import { apiKeyRoutes, ApiKeysService, purgeApiKeys } from './keys/index.ts'
import { PatsService, patRoutes } from './pats/index.ts'
import { LoginThrottle } from './throttle/index.ts'
import {
  PAT_PREFIX,
  TokensService,
  SigningKeys,
  browserRoutes,
  createPageLogins,
  createSessionCookie,
  startUseRecorder,
  tokenRoutes,
} from './tokens/index.ts'
import type { LoginUser, Logins, PageLogins } from './tokens/index.ts'

export type CredentialsDeps = {
  config: IdentityConfig
  database: Database
  keyring: Keyring
  journal: Journal
  access: AccessPolicy
  findLogin: (login: string) => Promise<LoginUser | undefined>
  /** Limits that all nodes share. */
  limits?: SharedLimits | undefined
}

export type Credentials = {
  readonly tokens: TokensService
  /** Browser sessions for WebSockets, with this check of their tokens. */
  pagesWith(authenticate: Logins['authenticate']): PageLogins
  /** Must be registered before the routes of other slices, because it adds the hook that checks credentials. */
  readonly routes: RoutePlugin
  stop(): Promise<void>
}

export async function startCredentials(deps: CredentialsDeps): Promise<Credentials> {
  const { config, database, keyring, journal, access, findLogin, limits } = deps
  const keys = await SigningKeys.start({
    database,
    keyring,
    journal,
    maxTokenMs: Math.max(config.accessTokenTtlMs, config.refreshTokenTtlMs),
    keyLifetimeMs: config.signingKeyLifetimeMs,
  })
  const uses = startUseRecorder(database)
  const apiKeys = new ApiKeysService({ database, journal, keys, uses })
  const pats = new PatsService({ database, journal, access, uses })
  const tokens = new TokensService({
    database,
    journal,
    keys,
    findLogin,
    uses,
    throttle: new LoginThrottle({ shared: limits }),
    others: {
      authenticateApiKey: (id, text, origin) => apiKeys.authenticate(id, text, origin),
      isPersonal: (text) => text.startsWith(PAT_PREFIX),
      authenticatePersonal: (text, origin) => pats.authenticate(text, origin),
      purge: purgeApiKeys,
    },
    accessTokenTtlMs: config.accessTokenTtlMs,
    refreshTokenTtlMs: config.refreshTokenTtlMs,
  })
  const cookies = createSessionCookie(config.publicUrl)
  for (const listener of [keys, tokens, apiKeys, pats]) journal.listen(listener)
  return {
    tokens,
    pagesWith: (authenticate) => createPageLogins(tokens.browserSessions, cookies, authenticate),
    routes: async (app) => {
      registerRouteRules(app)
      await tokenRoutes(tokens, keys, access)(app)
      await browserRoutes(tokens.browserSessions, cookies)(app)
      await apiKeyRoutes(apiKeys)(app)
      await patRoutes(pats)(app)
    },
    async stop() {
      await tokens.stop()
      await uses.stop()
      await keys.stop()
    },
  }
}
