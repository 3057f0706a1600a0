/**
 * The command line in a hostile folder (contract decision 77), and in front of a hostile server: what a `config.toml` of
 * another user can change, where tokens are sent, and what a terminal receives. Every run is a process of its own, on a
 * pseudo-terminal where one is needed.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { CONFIG_KEYS } from '#cli/shared/config-file.ts'
import { productSources } from '../architecture/source-imports.ts'
import { createHome } from '../cli/skein.ts'
import type { Home } from '../cli/skein.ts'

type Seen = { path: string; authorization: string | undefined }
type Fake = { url: string; seen: Seen[]; server: Server }

/** A token that does not expire before the test does. */
const JWT = `e30.${Buffer.from(JSON.stringify({ exp: 4e9, iat: 1 })).toString('base64url')}.x`
const ENDED_JWT = `e30.${Buffer.from(JSON.stringify({ exp: 2, iat: 1 })).toString('base64url')}.x`
const DOMAIN = '00000000-0000-4000-8000-000000000001'
const PROFILE = ['users', 'profile']
const REFUSED = /error: .*config\.toml sets .*--config/
/** Acts on a terminal: C0, C1, DEL, the ends of lines of Unicode, and what turns text around. */
const HOSTILE = 'a\u001B[2Jb\u009B31mc\u0007d\u007Fe\u202Ef\u2066g\rh\u061Ci\u2028j\u001B]0;title\u0007k'
// oxlint-disable-next-line no-control-regex -- what must not come out
const ACTS = /[\u0000-\u0008\u000B-\u001F\u007F-\u009F\u061C\u200E\u200F\u2028-\u202E\u2066-\u2069]/
// oxlint-disable-next-line no-control-regex -- our own styles
const OUR_STYLES = /\u001B\[(1|22|2|31|33|34|32|39)m/g

const servers: Fake[] = []
let mine: Fake
let evil: Fake
let home: Home
/** The folder with files of another user. */
let folder: string
let folders = 0

async function fake(answer: (path: string) => { status?: number; type?: string; location?: string; body: string }) {
  const seen: Seen[] = []
  const server = createServer((request, response) => {
    seen.push({ path: request.url ?? '', authorization: request.headers.authorization })
    const { status = 200, type = 'application/json', location, body } = answer(request.url ?? '')
    response.writeHead(status, { 'content-type': type, ...(location === undefined ? {} : { location }) })
    response.end(body)
  })
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
  const made = { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, seen, server }
  servers.push(made)
  return made
}

beforeAll(async () => {
  mine = await fake((path) =>
    path.startsWith('/text')
      ? { type: 'text/plain', body: HOSTILE }
      : path.startsWith('/refuse')
        ? { status: 400, body: JSON.stringify({ error: 'malformed', message: HOSTILE }) }
        : path.includes('/logs')
          ? { type: 'text/plain', body: HOSTILE }
          : path.includes('/messages') || path.includes('/c/')
            ? { type: 'application/x-ndjson', body: HOSTILE }
            : path.startsWith('/away')
              ? { status: 302, location: `${evil.url}/caught`, body: '' }
              : {
                  body: JSON.stringify({ id: '1', name: HOSTILE, [HOSTILE]: [HOSTILE], deep: { [HOSTILE]: HOSTILE } }),
                },
  )
  evil = await fake(() => ({ status: 201, body: JSON.stringify({ access_token: JWT, refresh_token: 'evil' }) }))
})
afterEach(() => {
  home[Symbol.dispose]()
  for (const { seen } of servers) seen.length = 0
})
afterAll(async () => {
  for (const { server } of servers) await new Promise((resolve) => server.close(resolve))
})

/** A new user in a folder of another user that contains `config`. */
function inFolder(config: string, login?: { access: string; origins?: string[] }): void {
  home = createHome()
  folder = join(home.folder, `folder${folders++}`)
  mkdirSync(folder)
  writeFileSync(join(folder, 'config.toml'), config)
  if (login === undefined) return
  const { access, origins = [mine.url] } = login
  const saved = { username: 'ada', access_token: access, refresh_token: 'the-refresh-token', origins }
  mkdirSync(join(home.folder, 'skein'), { recursive: true })
  writeFileSync(
    join(home.folder, 'skein', 'contexts.json'),
    JSON.stringify({ current: 'default', contexts: { default: { addresses: {}, login: saved } } }),
  )
}
const run = (args: readonly string[], environment: Record<string, string> = {}) =>
  home.run(args, { cwd: folder, environment })
const answering = (args: readonly string[], answer: string, environment: Record<string, string> = {}) =>
  home.runOnTerminal(args, { cwd: folder, environment, answers: [answer] })
const urlKeys = () => Object.entries(CONFIG_KEYS).flatMap(([key, { kind }]) => (kind === 'url' ? [key] : []))
const everyAddress = (url: string) =>
  `[remotes]\n${urlKeys()
    .map((key) => `${key} = "${url}"\n`)
    .join('')}`

describe('the file of the current folder', () => {
  test('sets filters and output without a question', async () => {
    inFolder('raw_output = "true"\n[filter]\nlimit = "3"\nname = "pump"\n')
    const ended = await run(['clients', 'get', 'all', DOMAIN, JWT], { SKEIN_URL: mine.url })
    expect(ended).toMatchObject({ code: 0, stderr: '' })
    expect(mine.seen).toMatchObject([
      { path: expect.stringMatching(/limit=3.*name=pump|name=pump.*limit=3/) as string },
    ])
  })

  test('sets no parameter that is not a filter of the file: nothing that a deletion would use', async () => {
    inFolder('[filter]\nfrom = "0"\nto = "9999999999"\npublisher = "x"\n')
    await run(['messages', 'delete', 'channel', DOMAIN, JWT], { SKEIN_URL: mine.url })
    expect(mine.seen.map(({ path }) => path)).toEqual([`/${DOMAIN}/channels/channel/messages`])
  })

  test.each([...urlKeys(), 'tls_verification', 'user_token'])(
    '%s is refused with one line where there is no terminal, and nothing is sent',
    async (key) => {
      const value = key === 'tls_verification' ? 'false' : JSON.stringify(key === 'user_token' ? JWT : evil.url)
      inFolder(`${key} = ${value}\n`, { access: JWT })
      const ended = await run(['api', 'GET', '/x'], { SKEIN_URL: mine.url })
      expect(ended).toMatchObject({ code: 1, stdout: '' })
      expect(ended.stderr).toMatch(REFUSED)
      expect(ended.stderr).toContain(key)
      expect(ended.stderr.trimEnd().split('\n')).toHaveLength(1)
      expect([...mine.seen, ...evil.seen]).toEqual([])
    },
  )

  test('is confirmed once: after yes its addresses are used, and the answer is stored in the configuration of the user', async () => {
    inFolder(everyAddress(evil.url))
    const first = await answering(['api', 'GET', '/x'], 'y')
    expect(first.code).toBe(0)
    expect(first.stdout).toContain('Use this for commands in this folder?')
    expect(first.stdout).toContain(evil.url)
    expect(evil.seen).toHaveLength(1)
    const second = await run(['api', 'GET', '/x'])
    expect(second).toMatchObject({ code: 0, stderr: '' })
    expect(evil.seen).toHaveLength(2)
    const kept = readFileSync(join(home.folder, 'skein', 'contexts.json'), 'utf8')
    expect(JSON.parse(kept)).toMatchObject({ folders: { [join(folder, 'config.toml')]: { isAgreed: true } } })
  })

  test('is confirmed again after a change of addresses, and not after a change of a filter', async () => {
    inFolder(everyAddress(mine.url))
    await answering(['api', 'GET', '/x'], 'y')
    writeFileSync(join(folder, 'config.toml'), `limit = "3"\n${everyAddress(mine.url)}`)
    expect(await run(['api', 'GET', '/x'])).toMatchObject({ code: 0 })
    writeFileSync(join(folder, 'config.toml'), everyAddress(evil.url))
    expect((await run(['api', 'GET', '/x'])).stderr).toMatch(REFUSED)
    expect(evil.seen).toEqual([])
  })

  test.each(['n', ''])('is confirmed once: after "%s" only its filters are used', async (answer) => {
    inFolder(`raw_output = "true"\n${everyAddress(evil.url)}`)
    mkdirSync(join(home.folder, 'skein'), { recursive: true })
    writeFileSync(join(home.folder, 'skein', 'config.toml'), `[remotes]\nurl = "${mine.url}"\n`)
    expect((await answering(['api', 'GET', '/x'], answer)).code).toBe(0)
    expect(await run(['api', 'GET', '/x'])).toMatchObject({ code: 0, stderr: '' })
    expect(mine.seen).toHaveLength(2)
    expect(evil.seen).toEqual([])
  })

  test('is used without a question when it is named', async () => {
    inFolder(everyAddress(mine.url))
    expect(await run(['api', 'GET', '/x', '--config', './config.toml'])).toMatchObject({ code: 0 })
    expect(mine.seen).toHaveLength(1)
  })

  test('shows no control characters in its question', async () => {
    const url = JSON.stringify(`${evil.url}/\u202Ex`)
    // TOML takes no DEL in a text; escapes it takes.
    inFolder(`user_token = ${JSON.stringify(HOSTILE).replace('\u007F', '')}\nusers_url = ${url}\n`)
    const { stdout } = await answering(['api', 'GET', '/x'], 'n')
    expect(stdout).toContain('users_url')
    // Of line editing alone.
    // oxlint-disable-next-line no-control-regex -- what readline sends
    expect(stdout.replaceAll(/\u001B\[\d*[GJ]|\r/g, '').replaceAll(OUR_STYLES, '')).not.toMatch(ACTS)
    expect(stdout).not.toContain(']0;title')
  })

  test('needs no confirmation for commands without a server', async () => {
    inFolder(everyAddress(evil.url))
    expect(await run(['completion', 'bash'])).toMatchObject({ code: 0, stderr: '' })
  })

  test('that is not a plain file, or too large, is refused', async () => {
    inFolder(`# ${'x'.repeat(1024 * 1024)}\n`)
    const ended = await run(['api', 'GET', '/x'])
    expect(ended.code).toBe(1)
    expect(ended.stderr).toContain('must be a plain file')
  })
})

describe('tokens', () => {
  test('of the saved login are sent to the addresses of the login only, whatever names other addresses', async () => {
    for (const [config, args, environment] of [
      [everyAddress(evil.url), ['--config', './config.toml'], {}],
      ['', ['--url', evil.url], {}],
      ['', [], { SKEIN_URL: evil.url }],
    ] as const) {
      inFolder(config, { access: JWT })
      const ended = await run([...PROFILE, ...args], environment)
      expect(ended.code).toBe(1)
      expect(ended.stderr).toContain(`is not valid for ${evil.url}`)
      // Neither with logout, which sends the refresh token.
      await run(['logout', ...args], environment)
      expect(evil.seen).toEqual([])
      home[Symbol.dispose]()
    }
    inFolder('', { access: JWT })
    expect(await run(PROFILE, { SKEIN_URL: mine.url })).toMatchObject({ code: 0 })
    expect(mine.seen).toMatchObject([{ authorization: `Bearer ${JWT}` }])
  })

  test('are not refreshed at another address: an old login, with a changed address of users', async () => {
    inFolder('', { access: ENDED_JWT })
    const environment = { SKEIN_URL: mine.url }
    const ended = await run(['channels', 'get', 'all', '--users-url', evil.url, '--domain', 'd'], environment)
    expect(ended.code).toBe(1)
    expect(evil.seen).toEqual([])
  })

  test('of SKEIN_TOKEN are sent to the addresses that the user names', async () => {
    inFolder('[filter]\nlimit = "1"\n')
    mkdirSync(join(home.folder, 'skein'), { recursive: true })
    const environment = { SKEIN_TOKEN: JWT }
    expect(await run(PROFILE, { ...environment, SKEIN_URL: mine.url })).toMatchObject({ code: 0 })
    expect(await run([...PROFILE, '--url', mine.url], environment)).toMatchObject({ code: 0 })
    writeFileSync(join(home.folder, 'skein', 'config.toml'), everyAddress(mine.url))
    expect(await run(PROFILE, environment)).toMatchObject({ code: 0 })
    expect(mine.seen.map(({ authorization }) => authorization)).toEqual(
      Array.from({ length: 3 }, () => `Bearer ${JWT}`),
    )
  })

  test('of SKEIN_TOKEN are never sent to an address of the folder, confirmed or not', async () => {
    inFolder(everyAddress(evil.url))
    expect((await run(PROFILE, { SKEIN_TOKEN: JWT })).stderr).toMatch(REFUSED)
    const agreed = await answering(PROFILE, 'y', { SKEIN_TOKEN: JWT })
    expect(agreed.code).toBe(1)
    expect(agreed.stdout).toContain(`the token of SKEIN_TOKEN is not valid for ${evil.url}`)
    expect(evil.seen).toEqual([])
  })

  test('of a file are sent to the addresses of that file', async () => {
    inFolder(`user_token = "${JWT}"\n${everyAddress(mine.url)}`)
    expect(await run([...PROFILE, '-c', 'config.toml'])).toMatchObject({ code: 0 })
    expect(mine.seen).toMatchObject([{ authorization: `Bearer ${JWT}` }])
    const ended = await run([...PROFILE, '-c', 'config.toml', '--url', evil.url])
    expect(ended.stderr).toContain(`is not valid for ${evil.url}`)
    expect(evil.seen).toEqual([])
  })

  test('do not follow a redirect', async () => {
    inFolder('', { access: JWT })
    for (const environment of [{ SKEIN_URL: mine.url }, { SKEIN_URL: mine.url, SKEIN_TOKEN: JWT }]) {
      const ended = await run(['api', 'GET', '/away'], environment)
      expect(ended).toMatchObject({ code: 1, stdout: '' })
      expect(ended.stderr).toContain('redirects are not followed')
    }
    expect(evil.seen).toEqual([])
  })
})

describe('a terminal', () => {
  test.each([
    ['text of any request', ['api', 'GET', '/text']],
    ['an object of any request', ['api', 'GET', '/x']],
    ['raw output', ['api', 'GET', '/x', '--raw']],
    ['raw text', ['api', 'GET', '/text', '--raw']],
    ['a refusal', ['api', 'GET', '/refuse']],
    ['the line of curl', ['api', 'GET', `/x${HOSTILE.replaceAll(/\s/g, '')}`, '--curl']],
    ['the log of a task', ['tasks', 'logs', 'id', JWT]],
    ['the raw log of a task', ['tasks', 'logs', 'id', JWT, '--raw']],
    ['an export to standard output', ['messages', 'export', 'channel', '-', DOMAIN, JWT]],
    ['an answer that names an id', ['clients', 'create', '{}', DOMAIN, JWT]],
    ['a command that nobody knows', ['clients', HOSTILE]],
    ['the notes of a file', ['provision', 'clients', `nowhere${HOSTILE}.csv`, DOMAIN, JWT]],
  ])('receives no control characters: %s', async (_what, args) => {
    inFolder('')
    const { stdout } = await home.runOnTerminal(args, { cwd: folder, environment: { SKEIN_URL: mine.url } })
    expect(stdout.length).toBeGreaterThan(0)
    expect(stdout.replaceAll(OUR_STYLES, '').replaceAll('\r\n', '\n')).not.toMatch(ACTS)
  })

  test('receives escaped text, while a pipe receives the text unchanged', async () => {
    inFolder('')
    const environment = { SKEIN_URL: mine.url }
    expect((await run(['api', 'GET', '/text'], environment)).stdout).toBe(`${HOSTILE}\n`)
    expect((await run(['tasks', 'logs', 'id', JWT], environment)).stdout).toBe(`${HOSTILE}\n`)
  })

  test('is written to in few places, each of which escapes', () => {
    const writers = productSources()
      .filter(
        ({ path, text }) =>
          path.startsWith('cli/') && /process\.std(out|err)\.write|console\.|pipeline\([^)]*process\./.test(text),
      )
      .map(({ path }) => path)
      .toSorted()
    expect(writers).toEqual(['cli/commands/completion.ts', 'cli/main.ts', 'cli/shared/prompt.ts'])
  })
})
