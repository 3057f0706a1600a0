/**
 * Logins and tokens (contract section 6, decisions 40, 41, 47). Access tokens are verified in memory. Their session and
 * user are cached, and the journal invalidates them within a second of a change.
 */
import { BoundedCache } from '#core/bounded-cache.ts'
import type { Database, Queryable } from '#core/database/index.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { createFactCache } from '#core/fact-cache.ts'
import type { FactCache } from '#core/fact-cache.ts'
import { isId } from '#core/ids.ts'
import { startPeriodicRounds } from '#core/rounds.ts'
import type { PeriodicRounds } from '#core/rounds.ts'
import { ANY_CHANGE } from '../access/index.ts'
import type { Origin, UserPrincipal } from '../access/index.ts'
import type { Page } from '#core/page.ts'
import type { Journal } from '../journal/index.ts'
import type { LoginThrottle } from '../throttle/index.ts'
import { purgeKnownAddresses } from '../throttle/index.ts'
import { BrowserSessions } from './browser-sessions.ts'
import type { Claims } from './jwt.ts'
import { TOKEN_TYPE, hasEnded, kidOf, newClaims, signToken, verifyToken } from './jwt.ts'
import { openSession } from './open-session.ts'
import { createPasswordCheck } from './password-check.ts'
import type { LoginUser, PasswordCheck } from './password-check.ts'
import type { Session, SessionRecord, TokenSubject } from './repository.ts'
import {
  advanceSession,
  countSessions,
  findMembership,
  findSessionOfToken,
  listSessions,
  lockSession,
  purgeSessions,
  revokeSession,
} from './repository.ts'
import type { SessionQuery, TokenPair } from './schema.ts'
import type { SigningKeys } from './signing-keys.ts'
import type { UseRecorder } from './use-recorder.ts'

export type TokensDeps = {
  database: Database
  journal: Journal
  keys: SigningKeys
  /** Finds the user of a login, by username or email. */
  findLogin: (login: string) => Promise<LoginUser | undefined>
  throttle: LoginThrottle
  uses: UseRecorder
  /** Bearer tokens other than logins. */
  others: {
    authenticateApiKey: (id: string, text: string, origin: Origin) => Promise<UserPrincipal>
    isPersonal: (text: string) => boolean
    authenticatePersonal: (text: string, origin: Origin) => Promise<UserPrincipal>
    /** Removes tokens that expired long ago. */
    purge: (db: Queryable) => Promise<void>
  }
  accessTokenTtlMs: number
  refreshTokenTtlMs: number
}

/** A username or an email, the password, and the domain that the tokens are bound to. */
export type Login = { identity?: string | undefined; secret?: string | undefined; domain_id?: string | undefined }

/** The part of the service that other slices use: logging in, and authenticating a token. */
export type Logins = Pick<TokensService, 'issue' | 'authenticate'>

const MAX_VERIFIED_TOKENS = 20_000
const MAX_SESSIONS = 50_000
const PURGE_INTERVAL_MS = 3_600_000

const BAD_TOKEN = 'failed to perform authentication: missing or invalid bearer'

const nowSeconds = () => Math.floor(Date.now() / 1000)

async function bindableDomain(
  db: Queryable,
  userKey: number,
  domainId: string | undefined,
): Promise<number | undefined> {
  if (domainId === undefined || domainId === '') return undefined
  const key = isId(domainId) ? await findMembership(db, userKey, domainId) : undefined
  if (key === undefined)
    throw new ServiceError('forbidden', 'failed to perform authorization: not a member of this domain')
  return key
}

function principalOf(session: Session, origin: Origin | undefined): UserPrincipal {
  return {
    kind: 'user',
    key: session.userKey,
    id: session.userId,
    isPlatformAdmin: session.userRole === 'admin',
    boundDomainKey: session.domainKey ?? undefined,
    credential: 'login',
    scope: undefined,
    sessionId: session.id,
    origin,
  }
}

function parseJti(jti: string): { sessionId: string; generation: number } {
  const [sessionId = '', generation = ''] = jti.split('.')
  if (!isId(sessionId) || !/^\d{1,9}$/.test(generation)) throw new ServiceError('unauthenticated', BAD_TOKEN)
  return { sessionId, generation: Number(generation) }
}

export class TokensService {
  /** Logins of browsers, which hold a cookie instead of a refresh token. */
  readonly browserSessions: BrowserSessions
  readonly #database: Database
  readonly #journal: Journal
  readonly #keys: SigningKeys
  readonly #throttle: LoginThrottle
  readonly #uses: UseRecorder
  readonly #others: TokensDeps['others']
  readonly #accessTokenTtlMs: number
  readonly #refreshTokenTtlMs: number
  readonly #checkPassword: PasswordCheck
  readonly #verified = new BoundedCache<string, Claims>({ maxEntries: MAX_VERIFIED_TOKENS })
  readonly #sessions: FactCache<Session | 'none'>
  readonly #purging: PeriodicRounds

  constructor(deps: TokensDeps) {
    this.#database = deps.database
    this.#journal = deps.journal
    this.#keys = deps.keys
    this.#throttle = deps.throttle
    this.#uses = deps.uses
    this.#others = deps.others
    this.#accessTokenTtlMs = deps.accessTokenTtlMs
    this.#refreshTokenTtlMs = deps.refreshTokenTtlMs
    this.#checkPassword = createPasswordCheck(deps)
    this.browserSessions = new BrowserSessions({
      database: deps.database,
      journal: deps.journal,
      checkPassword: this.#checkPassword,
      signAccessToken: (session, lifetimeMs) => this.#sign(TOKEN_TYPE.access, session, lifetimeMs),
      accessTokenTtlMs: deps.accessTokenTtlMs,
    })
    this.#sessions = createFactCache({ maxEntries: MAX_SESSIONS, isFresh: deps.journal.isFresh })
    this.#purging = startPeriodicRounds({
      firstPauseMs: PURGE_INTERVAL_MS,
      pauseMs: PURGE_INTERVAL_MS,
      round: () => this.#purge(),
      onFailure: () => undefined,
    })
  }

  /**
   * Throws `malformed` without login or password, `unauthenticated` for wrong credentials or a disabled user,
   * `rate_limited` after too many failures.
   */
  async issue(input: Login, origin: Origin): Promise<TokenPair> {
    const { identity: login, secret: password } = input
    if (login === undefined || login === '')
      throw new ServiceError('malformed', 'identity is required: a username or an email', {
        details: [{ path: '/identity', message: 'is required' }],
      })
    if (password === undefined || password === '') throw refusedField('/secret', 'is required')
    const user = await this.#checkPassword(login, password, origin)
    const domainKey = await bindableDomain(this.#database.db, user.key, input.domain_id)
    const id = await openSession(
      this.#journal,
      user,
      { domainKey, lifetimeSeconds: this.#refreshTokenTtlMs / 1000 },
      origin,
    )
    const session = {
      id,
      generation: 0,
      userId: user.id,
      userRole: user.role,
      domainId: domainKey === undefined ? null : (input.domain_id ?? null),
    }
    return this.#pairOf(session)
  }

  /** Throws `unauthenticated` for a token that is not valid. */
  async isRefreshToken(token: string): Promise<boolean> {
    if (this.#others.isPersonal(token)) return false
    return (await this.#verify(token)).type === TOKEN_TYPE.refresh
  }

  /**
   * Throws `unauthenticated` unless it is a refresh token that has not expired. `refresh` checks whether it was already
   * used.
   */
  async requireRefreshToken(token: string): Promise<void> {
    await this.#verifyRefresh(token)
  }

  /** Exchanges a refresh token, which is valid once. The reuse of an old one ends its session. */
  async refresh(refreshToken: string, domainId: string | undefined, origin: Origin): Promise<TokenPair> {
    const claims = await this.#verifyRefresh(refreshToken)
    const { sessionId, generation } = parseJti(claims.jti)
    const outcome = await this.#journal.change('system', async (tx, record) => {
      const session = await lockSession(tx, sessionId)
      if (session === undefined || !session.isAlive || session.userStatus !== 'enabled') return undefined
      if (session.generation !== generation) {
        // The token was copied, and its legitimate holder is unknown, so the session ends (decision 41).
        await revokeSession(tx, sessionId)
        record({
          operation: 'user.refresh_token_reused',
          entityKeys: [session.userKey],
          attributes: { id: session.userId, session: sessionId, address: origin.address },
        })
        return undefined
      }
      const domainKey =
        domainId === undefined || domainId === ''
          ? (session.domainKey ?? undefined)
          : await bindableDomain(tx, session.userKey, domainId)
      await advanceSession(tx, sessionId, domainKey, this.#refreshTokenTtlMs / 1000)
      record({
        operation: 'user.refresh_token',
        entityKeys: [session.userKey],
        attributes: { id: session.userId, session: sessionId, address: origin.address },
      })
      return {
        ...session,
        generation: generation + 1,
        domainId: domainId === undefined || domainId === '' ? session.domainId : domainId,
      }
    })
    if (outcome === undefined) throw new ServiceError('unauthenticated', BAD_TOKEN)
    return this.#pairOf(outcome)
  }

  /** Ends the session of a refresh token, with its access tokens. */
  async revoke(refreshToken: string, origin: Origin): Promise<void> {
    const claims = await this.#verifyRefresh(refreshToken)
    const { sessionId } = parseJti(claims.jti)
    await this.#journal.change('system', async (tx, record) => {
      const session = await lockSession(tx, sessionId)
      if (session === undefined) throw new ServiceError('unauthenticated', BAD_TOKEN)
      await revokeSession(tx, sessionId)
      record({
        operation: 'user.revoke_token',
        entityKeys: [session.userKey],
        attributes: { id: session.userId, session: sessionId, address: origin.address },
      })
    })
  }

  /** Lists the active logins of the caller, newest first. */
  async list(caller: UserPrincipal, query: SessionQuery): Promise<Page<SessionRecord>> {
    const { offset, limit } = query
    const [total, page] = await Promise.all([
      countSessions(this.#database.db, caller.key),
      listSessions(this.#database.db, caller.key, query),
    ])
    return { total, offset, limit, ...page }
  }

  /** Ends a login of the caller. Throws `not_found` for any other id. */
  async end(caller: UserPrincipal, sessionId: string): Promise<void> {
    const refuse = () => new ServiceError('not_found', 'entity not found')
    if (!isId(sessionId)) throw refuse()
    await this.#journal.change(caller, async (tx, record) => {
      const session = await lockSession(tx, sessionId)
      if (session === undefined || session.userKey !== caller.key || !session.isAlive) throw refuse()
      await revokeSession(tx, sessionId)
      record({
        operation: 'user.revoke_token',
        entityKeys: [session.userKey],
        attributes: { id: session.userId, session: sessionId },
      })
    })
  }

  /** Returns the principal of an access token, an API key or a personal access token. Throws `unauthenticated`. */
  async authenticate(token: string, origin: Origin): Promise<UserPrincipal> {
    if (this.#others.isPersonal(token)) return await this.#others.authenticatePersonal(token, origin)
    const claims = await this.#verify(token)
    if (claims.type === TOKEN_TYPE.apiKey) return await this.#others.authenticateApiKey(claims.jti, token, origin)
    if (claims.type !== TOKEN_TYPE.access) throw new ServiceError('unauthenticated', BAD_TOKEN)
    const { sessionId } = parseJti(claims.jti)
    const cacheKey = claims.domain === undefined ? sessionId : `${sessionId} ${claims.domain}`
    const session = await this.#sessions.get(cacheKey, async () => {
      const found = await findSessionOfToken(this.#database.db, sessionId, claims.domain)
      if (found === undefined) return { value: 'none', dependsOn: [ANY_CHANGE] }
      return { value: found, dependsOn: [found.userKey, ...(found.domainKey === null ? [] : [found.domainKey])] }
    })
    if (session === 'none' || !session.isAlive || session.userStatus !== 'enabled')
      throw new ServiceError('unauthenticated', BAD_TOKEN)
    this.#uses.used('sessions', session.id)
    return principalOf(session, origin)
  }

  invalidate(entityKeys: readonly number[]): void {
    this.#sessions.invalidate(entityKeys)
  }

  invalidateAll(): void {
    this.#sessions.invalidateAll()
  }

  async stop(): Promise<void> {
    this.#throttle.stop()
    await this.#purging.stop()
  }

  /** Verified tokens are cached. A token with an unknown key id triggers a look-up of the key. */
  async #verify(token: string): Promise<Claims> {
    const known = this.#verified.get(token)
    if (known !== undefined && !hasEnded(known, nowSeconds())) return known
    const kid = kidOf(token)
    if (kid !== undefined && this.#keys.publicKeyOf(kid) === undefined) await this.#keys.lookFor(kid)
    const claims = verifyToken(token, (of) => this.#keys.publicKeyOf(of), nowSeconds())
    if (claims === undefined) throw new ServiceError('unauthenticated', BAD_TOKEN)
    if (claims.type !== TOKEN_TYPE.refresh) this.#verified.set(token, claims)
    return claims
  }

  async #verifyRefresh(token: string): Promise<Claims> {
    const claims = await this.#verify(token)
    if (claims.type !== TOKEN_TYPE.refresh) throw new ServiceError('unauthenticated', BAD_TOKEN)
    return claims
  }

  #pairOf(session: TokenSubject): TokenPair {
    return {
      access_token: this.#sign(TOKEN_TYPE.access, session, this.#accessTokenTtlMs),
      refresh_token: this.#sign(TOKEN_TYPE.refresh, session, this.#refreshTokenTtlMs),
      access_type: 'Bearer',
    }
  }

  #sign(type: Claims['type'], session: TokenSubject, lifetimeMs: number): string {
    const { kid, privateKey } = this.#keys.current()
    const claims = newClaims(
      {
        type,
        jti: `${session.id}.${session.generation}`,
        sub: session.userId,
        role: session.userRole,
        ...(session.domainId === null ? {} : { domain: session.domainId }),
      },
      nowSeconds(),
      Math.ceil(lifetimeMs / 1000),
    )
    return signToken(claims, kid, privateKey)
  }

  async #purge(): Promise<void> {
    for (const purge of [purgeSessions, purgeKnownAddresses, this.#others.purge])
      await purge(this.#database.db).catch(() => undefined)
  }
}
