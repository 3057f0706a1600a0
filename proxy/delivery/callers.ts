/** Who calls the proxy: a manager by the proxy token, a worker by the ticket of its assignment. Nobody else is served. */
import type { Metadata } from '@grpc/grpc-js'
import { ServiceError } from '#core/errors/index.ts'
import { isSameToken } from '#proto/index.ts'
import type { FetchRequest } from '#proto/index.ts'
import type { KnownToken, ProxyToken } from '../proxy-token.ts'

export type Callers = {
  /** Throws `unauthenticated` unless the call carries the proxy token. */
  requireManager(metadata: Metadata): Promise<void>
  /** The worker whose ticket names this module and reference, or `manager`. Throws `unauthenticated`. */
  requireReader(metadata: Metadata, request: FetchRequest): Promise<string>
}

const SCHEME = 'Bearer '
const NO_TOKEN =
  'the proxy knows no token: set SKEIN_PROXY_TOKEN here and at the manager, or give both the same SKEIN_DATA_DIR'

export function createCallers(proxyToken: ProxyToken): Callers {
  /** What the check makes of the known token, and once more of a newer one. */
  async function check<T>(judge: (known: KnownToken) => T | undefined): Promise<T | undefined> {
    const known = await proxyToken.current()
    const first = known === undefined ? undefined : judge(known)
    if (first !== undefined) return first
    const renewed = await proxyToken.renewed()
    if (renewed === undefined) throw new ServiceError('unauthenticated', NO_TOKEN)
    return renewed === known ? undefined : judge(renewed)
  }

  function isManager(metadata: Metadata, { token }: KnownToken): boolean {
    const [header] = metadata.get('authorization')
    return typeof header === 'string' && header.startsWith(SCHEME) && isSameToken(header.slice(SCHEME.length), token)
  }

  return {
    async requireManager(metadata) {
      if ((await check((known) => isManager(metadata, known) || undefined)) === undefined) {
        throw new ServiceError(
          'unauthenticated',
          'only a manager with the proxy token (SKEIN_PROXY_TOKEN) may ask this',
        )
      }
    },
    async requireReader(metadata, request) {
      const reader = await check((known) =>
        request.ticket === ''
          ? isManager(metadata, known)
            ? 'manager'
            : undefined
          : known.verifyTicket(request.ticket, request, Math.floor(Date.now() / 1000)),
      )
      if (reader !== undefined) return reader
      throw new ServiceError('unauthenticated', 'the ticket is missing, expired, or of another module')
    },
  }
}
