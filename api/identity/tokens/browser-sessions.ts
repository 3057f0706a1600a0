/**
 * Logins of browsers: an opaque cookie instead of a refresh token. The cookie does not change while the session lasts, so
 * that a lost response does not end a login, and pages get access tokens of a few minutes for it.
 */
import { randomBytes } from 'node:crypto'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Origin } from '../access/index.ts'
import type { Journal } from '../journal/index.ts'
import { openSession } from './open-session.ts'
import type { PasswordCheck } from './password-check.ts'
import { findCookieSession, renewCookieSession, revokeSession } from './repository.ts'
import type { CookieSession, TokenSubject } from './repository.ts'
import type { BrowserLogin } from './schema.ts'
import { hashToken } from './token-hash.ts'

/** A session ends after this time without use, and at the latest this long after the login. */
export const BROWSER_IDLE_SECONDS = 12 * 3600
export const BROWSER_MAX_SECONDS = 30 * 24 * 3600
/** Longest lifetime of the access token of a page: long enough to work, short enough to lose. */
const PAGE_TOKEN_TTL_MS = 5 * 60_000

const COOKIE_BYTES = 32
/** Base64url of that many bytes. */
const COOKIE = /^[A-Za-z0-9_-]{43}$/

const NO_SESSION = 'failed to perform authentication: the browser session has ended; log in again'

export type BrowserSession = {
  id: string
  userId: string
  userRole: 'user' | 'admin'
  createdAt: string
  expiresAt: string
}

export type PageToken = { session: BrowserSession; accessToken: string; lifetimeSeconds: number }

export type BrowserSessionsDeps = {
  database: Database
  journal: Journal
  checkPassword: PasswordCheck
  signAccessToken: (session: TokenSubject, lifetimeMs: number) => string
  accessTokenTtlMs: number
}

const isCookie = (cookie: string | undefined): cookie is string => cookie !== undefined && COOKIE.test(cookie)

function shown({ id, userId, userRole, createdAt, expiresAt }: CookieSession): BrowserSession {
  return { id, userId, userRole, createdAt, expiresAt }
}

export class BrowserSessions {
  readonly #deps: BrowserSessionsDeps
  readonly #lifetimeMs: number

  constructor(deps: BrowserSessionsDeps) {
    this.#deps = deps
    this.#lifetimeMs = Math.min(deps.accessTokenTtlMs, PAGE_TOKEN_TTL_MS)
  }

  /** Throws `unauthenticated` for wrong credentials or a disabled user, `rate_limited` after too many failures. */
  async open({ identity, secret }: BrowserLogin, origin: Origin): Promise<PageToken & { cookie: string }> {
    const { journal, checkPassword } = this.#deps
    const user = await checkPassword(identity, secret, origin)
    const cookie = randomBytes(COOKIE_BYTES).toString('base64url')
    const terms = { domainKey: undefined, lifetimeSeconds: BROWSER_IDLE_SECONDS, cookieHash: hashToken(cookie) }
    await openSession(journal, user, terms, origin)
    return { ...(await this.renew(cookie)), cookie }
  }

  /** Returns an access token for the page, and extends the session. Throws `unauthenticated`. */
  async renew(cookie: string | undefined): Promise<PageToken> {
    const { database, signAccessToken } = this.#deps
    const session = isCookie(cookie)
      ? await renewCookieSession(database.db, hashToken(cookie), BROWSER_IDLE_SECONDS, BROWSER_MAX_SECONDS)
      : undefined
    if (session === undefined) throw new ServiceError('unauthenticated', NO_SESSION)
    const lifetimeMs = this.#lifetimeMs
    return {
      session: shown(session),
      accessToken: signAccessToken({ ...session, domainId: null }, lifetimeMs),
      lifetimeSeconds: Math.ceil(lifetimeMs / 1000),
    }
  }

  /** Returns an access token for a session that it does not extend. Throws `unauthenticated`. */
  async issue(cookie: string | undefined): Promise<string> {
    const session = isCookie(cookie) ? await findCookieSession(this.#deps.database.db, hashToken(cookie)) : undefined
    if (session === undefined) throw new ServiceError('unauthenticated', NO_SESSION)
    return this.#deps.signAccessToken({ ...session, domainId: null }, this.#lifetimeMs)
  }

  /** Returns the session of a cookie without extending it. Throws `unauthenticated`. */
  async find(cookie: string | undefined): Promise<BrowserSession> {
    const session = isCookie(cookie) ? await findCookieSession(this.#deps.database.db, hashToken(cookie)) : undefined
    if (session === undefined) throw new ServiceError('unauthenticated', NO_SESSION)
    return shown(session)
  }

  /** Ends the session of a cookie. Throws `unauthenticated` when there is none. */
  async end(cookie: string | undefined, origin: Origin): Promise<void> {
    const isEnded = isCookie(cookie) && (await this.#end(hashToken(cookie), origin))
    if (!isEnded) throw new ServiceError('unauthenticated', NO_SESSION)
  }

  async #end(cookieHash: Buffer, origin: Origin): Promise<boolean> {
    return await this.#deps.journal.change('system', async (tx, record) => {
      const session = await findCookieSession(tx, cookieHash)
      if (session === undefined) return false
      await revokeSession(tx, session.id)
      record({
        operation: 'user.revoke_token',
        entityKeys: [session.userKey],
        attributes: { id: session.userId, session: session.id, address: origin.address },
      })
      return true
    })
  }
}
