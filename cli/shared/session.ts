/**
 * Selects the token of a request: that of the command line, the environment, the configuration file, or the saved login.
 * A saved token, the refresh token too, is sent only to the addresses of the login, and SKEIN_TOKEN only to its
 * addresses: neither a `config.toml` in a foreign folder nor an address in the environment can redirect it.
 */
import type { ApiRequest, Session } from './command.ts'
import { CommandError } from './failures.ts'
import type { Incoming } from './http.ts'
import { changeContexts, claimsOf, readContexts } from './login-store.ts'
import type { Login } from './login-store.ts'
import { SERVICES } from './services.ts'
import { resolveAddress } from './settings.ts'
import type { Settings } from './settings.ts'
import { isRecord } from './values.ts'

/** A token with less remaining time is renewed first; a short-lived one in the second half of its life. */
const RENEW_BEFORE_S = 20
/** The login file is locked during a refresh. */
const REFRESH_DEADLINE_MS = 10_000

/** Whether a token expires soon: a request can take a while. */
function isEnding(token: string): boolean {
  const { exp, iat } = claimsOf(token) ?? {}
  if (exp === undefined) return false
  const lifetime = iat === undefined ? Infinity : exp - iat
  return exp - Date.now() / 1000 < Math.min(RENEW_BEFORE_S, lifetime / 2)
}

export function createSession(settings: Settings, send: (request: ApiRequest) => Promise<Incoming>): Session {
  const { contextName, contextsPath } = settings
  let login = readContexts(contextsPath).contexts[contextName]?.login

  const isForUsers = ({ origins }: Login) => origins.includes(new URL(settings.address('users').url).origin)

  async function refresh(): Promise<boolean> {
    const before = login
    if (before === undefined || !isForUsers(before)) return false
    return await changeContexts(contextsPath, async (all) => {
      const kept = all.contexts[contextName]
      if (kept?.login === undefined) return false
      if (kept.login.access_token !== before.access_token) {
        // Another command refreshed the token first.
        login = kept.login
        return true
      }
      const answer = await send({
        method: 'POST',
        service: 'users',
        path: '/users/tokens/refresh',
        authorization: 'refresh',
        deadlineMs: REFRESH_DEADLINE_MS,
      })
      const value: unknown = answer.status === 201 ? JSON.parse(answer.text) : undefined
      if (!isRecord(value)) {
        if (answer.status === 401) delete kept.login
        return false
      }
      login = { ...before, access_token: String(value['access_token']), refresh_token: String(value['refresh_token']) }
      kept.login = login
      return true
    })
  }

  const isSaved = (request: ApiRequest): boolean =>
    request.token === undefined &&
    settings.token === undefined &&
    (request.authorization === undefined || request.authorization === 'needed' || request.authorization === 'optional')

  return {
    login: () => login,
    hasToken: () => settings.token !== undefined || login !== undefined,
    async authorization(request, url) {
      const { authorization = 'needed' } = request
      if (authorization === 'none') return undefined
      if (typeof authorization === 'object') return authorization.header
      const { origin } = new URL(url)
      const refuse = (what: string) => {
        if (authorization === 'optional') return undefined
        throw new CommandError(
          `${what} is not valid for ${origin}`,
          'log in there: skein login --url URL --context NAME; or give a token as the last argument',
        )
      }
      if (authorization === 'refresh') {
        if (login === undefined) throw new CommandError('you are not logged in', 'log in: skein login')
        return login.origins.includes(origin)
          ? `Bearer ${login.refresh_token}`
          : refuse(`the login of context ${contextName}`)
      }
      if (request.token === undefined && settings.token !== undefined && !settings.token.isFor(request.service))
        return refuse(`the token of ${settings.token.from}`)
      const given = request.token ?? settings.token?.value
      if (given !== undefined) return `Bearer ${given.replace(/^Bearer /, '')}`
      if (login === undefined) {
        if (authorization === 'optional') return undefined
        throw new CommandError(
          'you are not logged in',
          'run "skein login", set SKEIN_TOKEN, or give a token as the last argument',
        )
      }
      if (!login.origins.includes(origin)) return refuse(`the login of context ${contextName}`)
      if (isEnding(login.access_token) && !(await refresh()) && authorization === 'needed')
        throw new CommandError(`the login of ${login.username} has expired`, 'log in again: skein login')
      return `Bearer ${login.access_token}`
    },
    async renew(request) {
      return isSaved(request) && login !== undefined && (await refresh())
    },
    hintWhenRefused(request) {
      if (typeof request.authorization === 'object') return 'check the secret, key or password'
      if (request.token !== undefined)
        return 'the token of the command line is invalid or expired: skein users token, skein login'
      if (settings.token !== undefined) return `the token of ${settings.token.from} is invalid or expired`
      return 'log in: skein login'
    },
    hidden() {
      const hidden = new Map<string, string>()
      if (login !== undefined) {
        hidden.set(login.access_token, '$(skein token)')
        hidden.set(login.refresh_token, '$REFRESH_TOKEN')
      }
      if (settings.token !== undefined) hidden.set(settings.token.value, '$SKEIN_TOKEN')
      const password = settings.environment['SKEIN_PASSWORD']
      if (password !== undefined && password !== '') hidden.set(password, '$SKEIN_PASSWORD')
      return hidden
    },
    async saveLogin(next) {
      await changeContexts(contextsPath, (all) => {
        const before = all.contexts[contextName]
        const addresses = { ...before?.addresses, ...settings.givenAddresses }
        // The address of this command and the default addresses of later commands: `--url` can hide an address of the
        // environment.
        const urls = SERVICES.flatMap((service) => [
          settings.address(service).url,
          resolveAddress(service, [{ from: 'context', addresses }]).url,
        ])
        const kept = { ...next, origins: [...new Set(urls.map((url) => new URL(url).origin))] }
        login = kept
        all.contexts[contextName] = { ...before, addresses, login: kept }
        if (Object.keys(all.contexts).length === 1) all.current = contextName
      })
    },
    async removeLogin() {
      login = undefined
      await changeContexts(contextsPath, (all) => {
        delete all.contexts[contextName]?.login
      })
    },
  }
}
