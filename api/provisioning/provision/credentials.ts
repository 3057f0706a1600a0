/**
 * The user of requests without Authorization (contract 9.2): from the API key, or else from user and password of the
 * settings.
 */
import type { Origin, Logins, UserPrincipal } from '#api/identity/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { ServiceCredentials } from './layout.ts'

export type ServiceLogin = {
  /** True when credentials are configured. */
  readonly isOn: boolean
  /** Throws `unauthenticated` without credentials or with wrong ones. */
  authenticate(origin: Origin): Promise<UserPrincipal>
}

export function createServiceLogin(tokens: Logins, credentials: ServiceCredentials): ServiceLogin {
  /** A login requires a slow hash and a session, so its token is reused until it expires. */
  let loggedIn: Promise<string> | undefined

  async function accessToken(identity: string, password: string, origin: Origin): Promise<string> {
    loggedIn ??= tokens.issue({ identity, secret: password }, origin).then((pair) => pair.access_token)
    const current = loggedIn
    current.catch(() => {
      if (loggedIn === current) loggedIn = undefined
    })
    return await current
  }

  return {
    isOn: credentials !== undefined,
    async authenticate(origin) {
      if (credentials === undefined)
        throw new ServiceError('unauthenticated', 'failed to perform authentication: missing or invalid bearer')
      if ('apiKey' in credentials) return await tokens.authenticate(credentials.apiKey.reveal(), origin)
      const { identity, password } = credentials
      const first = await accessToken(identity, password.reveal(), origin)
      try {
        return await tokens.authenticate(first, origin)
      } catch (error) {
        if (kindOf(error) !== 'unauthenticated') throw error
        loggedIn = undefined
        return await tokens.authenticate(await accessToken(identity, password.reveal(), origin), origin)
      }
    },
  }
}
