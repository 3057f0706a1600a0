/** `skein login`, `skein logout`, `skein token`. */
import type { Cli, Group } from '../shared/command.ts'
import { CommandError } from '../shared/failures.ts'
import { changeContexts } from '../shared/login-store.ts'
import { ask, readLine } from '../shared/prompt.ts'
import { isRecord, plainText } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'

export const login: Group = {
  name: 'login',
  summary: 'log in and save the tokens',
  commands: [
    {
      words: '',
      args: '[<username>] [<password>]',
      tail: 'none',
      summary: 'log in and save the tokens; prompts for missing values',
      example: 'ada --url https://skein.example.com',
      flags: ['username', 'password-stdin'],
      run: logIn,
    },
  ],
}

export const logout: Group = {
  name: 'logout',
  summary: 'end the session and delete its tokens',
  commands: [
    {
      words: '',
      args: '',
      tail: 'none',
      summary: 'end the session at the server and delete its tokens',
      example: '',
      run: logOut,
    },
  ],
}

export const token: Group = {
  name: 'token',
  summary: 'print the access token of the login',
  commands: [
    {
      words: '',
      args: '',
      tail: 'none',
      summary: 'print the access token of the login, renewed when it is about to expire',
      example: '',
      run: printToken,
    },
  ],
}

async function logIn(cli: Cli, given: Given): Promise<void> {
  const { environment, contextName } = cli.settings
  const username =
    given.args['username'] ??
    given.flags.get('username') ??
    (await ask('username or email: ', { isSecret: false }, cli.signal))
  const password =
    given.args['password'] ??
    (given.flags.has('password-stdin')
      ? await readLine()
      : (environment['SKEIN_PASSWORD'] ?? (await ask('password: ', { isSecret: true }, cli.signal))))
  if (username === '' || password === '') throw new CommandError('username and password must not be empty')
  const { value } = await cli.request({
    method: 'POST',
    service: 'users',
    path: '/users/tokens/issue',
    authorization: 'none',
    json: { identity: username, secret: password },
  })
  if (!isRecord(value) || typeof value['access_token'] !== 'string')
    throw new CommandError('the answer contains no token', 'check the address: skein doctor')
  await cli.session.saveLogin({
    username,
    access_token: value['access_token'],
    refresh_token: plainText(value['refresh_token']),
  })
  const domain = await onlyDomain(cli)
  if (domain !== undefined)
    await changeContexts(cli.settings.contextsPath, (all) => {
      const context = all.contexts[contextName]
      if (context !== undefined) context.domain ??= domain.id
    })
  cli.output.ok()
  if (cli.output.isErrorTerminal)
    cli.output.note(
      domain === undefined
        ? `logged in as ${username}; choose a domain: skein domains get all, skein context domain ID`
        : `logged in as ${username}; working in domain ${domain.name}`,
    )
}

/** The domain of a user who has exactly one. A failure of this listing does not fail the login. */
async function onlyDomain(cli: Cli): Promise<{ id: string; name: string } | undefined> {
  try {
    const { value } = await cli.request({ method: 'GET', service: 'domains', path: '/domains', query: { limit: '2' } })
    const domains = isRecord(value) && Array.isArray(value['domains']) ? value['domains'].filter(isRecord) : []
    const [only] = domains
    return domains.length === 1 && only !== undefined
      ? { id: String(only['id']), name: String(only['name']) }
      : undefined
  } catch {
    return undefined
  }
}

async function logOut(cli: Cli): Promise<void> {
  const kept = cli.session.login()
  if (kept === undefined) throw new CommandError(`context ${cli.settings.contextName} is not logged in`)
  let problem: unknown
  try {
    await cli.request({
      method: 'POST',
      service: 'users',
      path: '/users/tokens/revoke',
      authorization: 'refresh',
    })
  } catch (error) {
    problem = error
  }
  await cli.session.removeLogin()
  if (problem !== undefined)
    cli.output.note(`local tokens deleted; the server failed to end the session: ${(problem as Error).message}`)
  cli.output.ok()
}

async function printToken(cli: Cli): Promise<void> {
  const { headers } = await cli.prepare({ method: 'GET', service: 'users', path: '/users/profile' })
  const bearer = headers['Authorization']?.replace(/^Bearer /, '') ?? ''
  cli.output.line(bearer)
}
