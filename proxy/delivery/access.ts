/** Who calls the proxy: a manager by the proxy token, everybody else by a ticket. Nobody else is served. */
import { bearerTokenOf } from '#core/authorization.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isSameToken } from '#proto/index.ts'
import type { TicketGrant } from '#proto/index.ts'
import type { KnownToken, ProxyToken } from './proxy-token.ts'

const NO_TOKEN =
  'the proxy knows no token: set SKEIN_PROXY_TOKEN here and at the manager, or give both the same SKEIN_DATA_DIR'

export class ProxyAccess {
  readonly #token: ProxyToken

  constructor(token: ProxyToken) {
    this.#token = token
  }

  /** Throws `unauthenticated` unless the header carries the proxy token. */
  async requireManager(authorization: string | undefined): Promise<void> {
    const given = bearerTokenOf(authorization) ?? ''
    if (await this.#check(({ token }) => isSameToken(given, token) || undefined)) return
    throw new ServiceError('unauthenticated', 'only a manager with the proxy token (SKEIN_PROXY_TOKEN) may ask this')
  }

  /** What the ticket in the header allows. Throws `unauthenticated`. */
  async requireTicket(authorization: string | undefined): Promise<TicketGrant> {
    const given = bearerTokenOf(authorization)
    if (given === undefined)
      throw new ServiceError('unauthenticated', 'a ticket is required: Authorization: Bearer <ticket>')
    const grant = await this.#check(({ verifyTicket }) => verifyTicket(given, Math.floor(Date.now() / 1000)))
    if (grant !== undefined) return grant
    throw new ServiceError('unauthenticated', 'the ticket is not valid, or has expired')
  }

  /** What the check makes of the known token, and once more of a newer one. */
  async #check<T>(judge: (known: KnownToken) => T | undefined): Promise<T | undefined> {
    const known = await this.#token.current()
    const first = known === undefined ? undefined : judge(known)
    if (first !== undefined) return first
    const renewed = await this.#token.renewed()
    if (renewed === undefined) throw new ServiceError('unauthenticated', NO_TOKEN)
    return renewed === known ? undefined : judge(renewed)
  }
}
