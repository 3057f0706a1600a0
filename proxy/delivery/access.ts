/** Authentication of callers: managers by the proxy token, all others by a ticket. */
import { bearerTokenOf } from '#core/authorization.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isSameToken } from '#proto/index.ts'
import type { TicketGrant } from '#proto/index.ts'
import type { KnownToken, ProxyToken } from './proxy-token.ts'

const NO_TOKEN =
  'the proxy has no token: set SKEIN_PROXY_TOKEN here and at the manager, or set the same SKEIN_DATA_DIR for both'

export class ProxyAccess {
  readonly #token: ProxyToken

  constructor(token: ProxyToken) {
    this.#token = token
  }

  /** Throws `unauthenticated` unless the header contains the proxy token. */
  async requireManager(authorization: string | undefined): Promise<void> {
    const given = bearerTokenOf(authorization) ?? ''
    if (await this.#check(({ token }) => isSameToken(given, token) || undefined)) return
    throw new ServiceError(
      'unauthenticated',
      'this request requires the proxy token of the managers (SKEIN_PROXY_TOKEN)',
    )
  }

  /** The permission of the ticket in the header. Throws `unauthenticated`. */
  async requireTicket(authorization: string | undefined): Promise<TicketGrant> {
    const given = bearerTokenOf(authorization)
    if (given === undefined)
      throw new ServiceError('unauthenticated', 'a ticket is required: Authorization: Bearer <ticket>')
    const grant = await this.#check(({ verifyTicket }) => verifyTicket(given, Math.floor(Date.now() / 1000)))
    if (grant !== undefined) return grant
    throw new ServiceError('unauthenticated', 'the ticket is invalid or expired')
  }

  /** Checks against the current token, and again after a reload. */
  async #check<T>(judge: (known: KnownToken) => T | undefined): Promise<T | undefined> {
    const known = await this.#token.current()
    const first = known === undefined ? undefined : judge(known)
    if (first !== undefined) return first
    const renewed = await this.#token.renewed()
    if (renewed === undefined) throw new ServiceError('unauthenticated', NO_TOKEN)
    return renewed === known ? undefined : judge(renewed)
  }
}
