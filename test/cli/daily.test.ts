/**
 * Daily use (contract section 13): logging in once, contexts, files of thousands of lines, streams and their interruption, and
 * what must never leave the machine. Access tokens live for seconds here, so that they expire under way.
 */
import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { claimsOf } from '#cli/shared/login-store.ts'
import { createInstallation, startWhole } from '../harness/whole.ts'
import type { Installation, Whole } from '../harness/whole.ts'
import { until } from '../harness/until.ts'
import { createHome } from './skein.ts'
import type { Ended, Home } from './skein.ts'
import { ADMIN_SECRET, PATIENT_WORKER } from './world.ts'

const ENDLESS = join(import.meta.dirname, '..', '..', 'examples', 'endless', 'endless.wasm')
const HELLO = join(import.meta.dirname, '..', '..', 'examples', 'hello', 'hello.wasm')
const ADD = join(import.meta.dirname, '..', '..', 'examples', 'add', 'add.wasm')

/** The whole platform starts, on a machine that others use too. */
const START_DEADLINE_MS = 180_000

let installation: Installation
let whole: Whole
let managerUrl: string
/** Logged in as the admin, working in a domain. */
let home: Home
let domain: string

const json = <T = Record<string, unknown>>({ code, stdout, stderr }: Ended): T => {
  if (code !== 0) throw new Error(`ended with ${code}: ${stderr}`)
  return JSON.parse(stdout) as T
}
const newHome = () => createHome({ SKEIN_URL: installation.base, SKEIN_MANAGER_URL: managerUrl })
const logIn = (at: Home) => at.run(['login', 'admin', '--password-stdin'], { input: `${ADMIN_SECRET}\n` })
const contextsOf = (at: Home) =>
  JSON.parse(readFileSync(join(at.folder, 'skein', 'contexts.json'), 'utf8')) as {
    contexts: Record<
      string,
      { login?: { access_token: string; refresh_token: string; origins: string[] }; domain?: string }
    >
  }

beforeAll(async () => {
  // Long enough for a command that was given a token, on a busy machine too.
  installation = await createInstallation({ ...PATIENT_WORKER, SKEIN_ACCESS_TOKEN_TTL: '10s' })
  whole = await startWhole(installation)
  managerUrl = `http://127.0.0.1:${installation.environment['SKEIN_MANAGER_HTTP_PORT']}`
  home = newHome()
  expect(await logIn(home)).toMatchObject({ code: 0, stdout: 'ok\n', stderr: '' })
  domain = String(json(await home.run(['domains', 'create', 'Plant', 'plant']))['id'])
  expect(await home.run(['context', 'domain', 'plant'])).toMatchObject({ code: 0 })
}, START_DEADLINE_MS)

afterAll(async () => {
  home?.[Symbol.dispose]()
  await whole?.[Symbol.asyncDispose]()
  installation?.[Symbol.dispose]()
})

describe('the login', () => {
  it('asks on a terminal, and never shows the password', async () => {
    using at = newHome()
    const ended = await at.runOnTerminal(['login'], { answers: ['admin', ADMIN_SECRET] })
    expect(ended.code).toBe(0)
    expect(ended.stdout).toContain('logged in as admin')
    expect(ended.stdout).not.toContain(ADMIN_SECRET)
  })

  it('can be interrupted at the question', async () => {
    using at = newHome()
    const ended = await at.runOnTerminal(['login'], { interruptWhen: (text) => text.includes('username') })
    expect(ended.code).toBe(1)
  })

  it('fails with a clear error without a terminal, and with a wrong password', async () => {
    using at = newHome()
    const unasked = await at.run(['login'])
    expect(unasked).toMatchObject({ code: 1, stdout: '' })
    expect(unasked.stderr).toContain('--password-stdin')
    const wrong = await at.run(['login', 'admin', 'wrong-password'])
    expect(wrong).toMatchObject({ code: 1, stdout: '' })
    expect(wrong.stderr).toContain('error: ')
    expect(wrong.stderr).not.toContain('wrong-password')
  })

  it('stores tokens readable by the owner only, and none in the configuration file', () => {
    const folder = join(home.folder, 'skein')
    for (const name of ['contexts.json', 'config.toml']) expect(statSync(join(folder, name)).mode & 0o777).toBe(0o600)
    const { access_token: token } = contextsOf(home).contexts['default']?.login ?? { access_token: '?' }
    expect(readFileSync(join(folder, 'config.toml'), 'utf8')).not.toContain(token)
  })

  it('is valid for every address of its context, whatever `--url` overrides for one command', async () => {
    using at = newHome()
    const login = ['login', 'admin', '--password-stdin', '--url', installation.base]
    expect((await at.run(login, { input: `${ADMIN_SECRET}\n` })).code).toBe(0)
    expect(contextsOf(at).contexts['default']?.login?.origins.toSorted()).toEqual(
      [installation.base, managerUrl].map((url) => new URL(url).origin).toSorted(),
    )
  })

  it('outlives its access token, also for many concurrent commands', async () => {
    using at = newHome()
    await logIn(at)
    const before = contextsOf(at).contexts['default']?.login
    const expiresAt = claimsOf(before?.access_token ?? '')?.exp ?? 0
    await until(() => Date.now() / 1000 > expiresAt, 'the access token expires')
    const ended = await Promise.all(Array.from({ length: 6 }, () => at.run(['users', 'profile'])))
    for (const one of ended) expect(json(one)).toMatchObject({ credentials: { username: 'admin' } })
    expect(contextsOf(at).contexts['default']?.login?.refresh_token).not.toBe(before?.refresh_token)
  })

  it('that the server has ended fails with the advice to log in again', async () => {
    using at = newHome()
    await logIn(at)
    const refresh = contextsOf(at).contexts['default']?.login?.refresh_token ?? ''
    await whole.call('POST', '/users/tokens/revoke', { authorization: `Bearer ${refresh}` })
    const ended = await at.run(['users', 'profile'])
    expect(ended.code).toBe(1)
    expect(ended.stderr).toContain('skein login')
  })

  it('is not changed by a token on the command line, and an expired token is reported', async () => {
    const issued = json<{ access_token: string }>(await home.run(['users', 'token', 'admin', ADMIN_SECRET]))
    const expiresAt = claimsOf(issued.access_token)?.exp ?? 0
    await until(() => Date.now() / 1000 > expiresAt, 'the access token expires')
    const ended = await home.run(['users', 'profile', issued.access_token])
    expect(ended).toMatchObject({ code: 1, stdout: '' })
    expect(ended.stderr).toContain('the token of the command line is invalid')
  })

  it('is sent to the addresses of its context only, whatever a configuration file in a foreign folder says', async () => {
    const seen: IncomingMessage['headers'][] = []
    const stranger = createServer((request, response) => {
      seen.push(request.headers)
      response.end('{}')
    })
    await new Promise<void>((resolve) => void stranger.listen(0, '127.0.0.1', resolve))
    const url = `http://127.0.0.1:${(stranger.address() as AddressInfo).port}`
    using at = createHome()
    await at.run(['login', 'admin', '--password-stdin', '--url', installation.base], { input: `${ADMIN_SECRET}\n` })
    for (const environment of [{ SKEIN_URL: url }, { SKEIN_CONFIG: join(at.folder, 'config.toml') }]) {
      writeFileSync(join(at.folder, 'config.toml'), `[remotes]\nusers_url = "${url}"\n`)
      const args = 'SKEIN_URL' in environment ? [] : ['--context', 'other']
      const ended = await at.run(['users', 'profile', ...args], { environment })
      expect(ended.code).toBe(1)
      expect(ended.stderr).toMatch(/needs your consent|is not valid for|not logged in/)
    }
    expect(seen).toEqual([])
    await new Promise((resolve) => stranger.close(resolve))
  })

  it('ends with logout, locally and at the server', async () => {
    using at = newHome()
    await logIn(at)
    const refresh = contextsOf(at).contexts['default']?.login?.refresh_token ?? ''
    expect(await at.run(['logout'])).toMatchObject({ code: 0, stdout: 'ok\n' })
    expect(contextsOf(at).contexts['default']?.login).toBeUndefined()
    const answer = await whole.call('POST', '/users/tokens/refresh', { authorization: `Bearer ${refresh}` })
    expect(answer.status).toBe(401)
    expect((await at.run(['users', 'profile'])).stderr).toContain('you are not logged in')
  })

  it('is the output of token, and curl lines refer to it instead of showing it', async () => {
    const { stdout } = await home.run(['token'])
    expect(claimsOf(stdout)?.sub).toBeDefined()
    const ended = await home.run(['clients', 'get', 'all', '--curl'])
    expect(ended.code).toBe(0)
    expect(ended.stderr).toContain(`curl -sS -H 'Accept: application/json' -H "Authorization: Bearer $(skein token)"`)
    expect(ended.stderr).toContain(`/${domain}/clients?limit=10&offset=0`)
    expect(ended.stderr).not.toContain('eyJ')
    const login = await home.run(['login', 'admin', '--curl'], { environment: { SKEIN_PASSWORD: ADMIN_SECRET } })
    expect(login.stderr).toContain('$SKEIN_PASSWORD')
    expect(login.stderr).not.toContain(ADMIN_SECRET)
  })
})

describe('contexts and settings', () => {
  it('keep several installations apart', async () => {
    using at = createHome()
    expect(await at.run(['context', 'create', 'plant', '--url', installation.base])).toMatchObject({ code: 0 })
    await logIn(at)
    expect(json(await at.run(['users', 'profile']))).toBeDefined()
    await at.run(['context', 'create', 'other', '--url', 'http://127.0.0.1:1'])
    expect((await at.run(['users', 'profile'])).stderr).toContain('you are not logged in')
    expect(json(await at.run(['users', 'profile', '--context', 'plant']))).toBeDefined()
    expect(await at.run(['context', 'use', 'nowhere'])).toMatchObject({ code: 1 })
    await at.run(['context', 'use', 'plant'])
    expect(json(await at.run(['context', 'get', 'all']))['contexts']).toMatchObject([
      { current: '*', name: 'plant', username: 'admin' },
      { current: '', name: 'other', username: '' },
    ])
  })

  it('are taken from flags, the environment, the file and the defaults, in this order', async () => {
    using at = createHome()
    const shown = async (args: string[], environment: Record<string, string> = {}) =>
      json<{ addresses: Record<string, string> }>(await at.run(['context', 'show', ...args], { environment })).addresses
    expect(await shown([])).toMatchObject({
      users: 'http://127.0.0.1:9002',
      clients: 'http://127.0.0.1:9000',
      domains: 'http://127.0.0.1:8189',
      bootstrap: 'http://127.0.0.1:9013',
      certs: 'http://127.0.0.1:9019',
      invitations: 'http://127.0.0.1:9020',
      http: 'http://127.0.0.1:8080/http',
      reader: 'http://127.0.0.1:8080',
      manager: 'http://127.0.0.1:7070',
    })
    expect(await at.run(['config', 'users_url', 'http://file:1'])).toMatchObject({ code: 0, stdout: 'ok\n' })
    expect(await shown([])).toMatchObject({ users: 'http://file:1', clients: 'http://127.0.0.1:9000' })
    expect(await shown([], { SKEIN_URL: 'http://env:2' })).toMatchObject({
      users: 'http://env:2',
      manager: 'http://env:2',
      http: 'http://env:2/http',
    })
    expect(await shown(['-u', 'http://flag:3'], { SKEIN_URL: 'http://env:2' })).toMatchObject({
      users: 'http://flag:3',
      clients: 'http://env:2',
    })
  })

  it('in a file are accepted in the tables of all product versions, and setting one keeps its comments', async () => {
    using at = newHome()
    const file = join(at.folder, 'old.toml')
    writeFileSync(
      file,
      '# mine\nraw_output = "true"\nuser_token = ""\n\n[filter]\n  limit = "3"\n\n[remotes]\n  things_url = "http://things:1"\n  tls_verification = false\n',
    )
    const shown = json<{ addresses: Record<string, string> }>(await at.run(['context', 'show', '-c', file]))
    expect(shown.addresses['clients']).toBe(installation.base)
    expect(await at.run(['config', 'limit', '7', '-c', file])).toMatchObject({ code: 0 })
    const text = readFileSync(file, 'utf8')
    expect(text).toContain('# mine')
    expect(text).toContain('limit = "7"')
    expect(await at.run(['config', 'colour', 'red', '-c', file])).toMatchObject({ code: 1 })
    expect((await at.run(['config', 'colour', 'red', '-c', file])).stderr).toContain('unknown key colour')
    expect(await at.run(['config', 'users_url', 'ftp://x', '-c', file])).toMatchObject({ code: 1 })
    expect(await at.run(['config', 'limit', 'many', '-c', file])).toMatchObject({ code: 2 })
    writeFileSync(file, 'limit = [\n')
    const broken = await at.run(['users', 'profile', '-c', file])
    expect(broken.code).toBe(1)
    expect(broken.stderr).toContain('is not TOML')
  })

  it('accept the route of a domain', async () => {
    expect(json(await home.run(['domains', 'get', 'plant']))['id']).toBe(domain)
    expect(json(await home.run(['clients', 'get', 'all', '--domain', 'plant']))['total']).toBeDefined()
    expect((await home.run(['clients', 'get', 'all', '--domain', 'no-such-plant'])).code).toBe(1)
  })
})

describe('scripts', () => {
  const issue = async (domainId?: string) =>
    json<{ access_token: string }>(
      await home.run(['users', 'token', 'admin', ADMIN_SECRET, ...(domainId === undefined ? [] : [domainId])]),
    ).access_token

  it('of every product version run unchanged, without any login', async () => {
    using at = newHome()
    const created = json(await at.run(['things', 'create', '{"name": "older"}', await issue(domain)]))
    expect(created).toMatchObject({ name: 'older', domain_id: domain })
    const id = String(created['id'])
    expect(json(await at.run(['things', 'get', id, await issue(domain)]))).toMatchObject({ id })
    for (const words of [
      ['get', id],
      [id, 'get'],
    ])
      expect(json(await at.run(['clients', ...words, domain, await issue()]))).toMatchObject({ id })
    const channel = String(json(await at.run(['channels', 'create', '{"name": "c"}', domain, await issue()]))['id'])
    const secret = (created['credentials'] as { secret: string }).secret
    expect(await at.run(['things', 'connect', id, channel, await issue(domain)])).toMatchObject({ stdout: 'ok\n' })
    expect(await at.run(['messages', 'send', `${channel}.a.b`, '[{"n":"t","v":1}]', secret])).toMatchObject({
      code: 0,
      stdout: 'ok\n',
    })
    const page = json<{ messages: unknown[] }>(
      await at.run(['messages', 'read', `${channel}.a.b`, domain, await issue()]),
    )
    expect(page.messages).toMatchObject([{ name: 't', value: 1, publisher: id, subtopic: 'a.b' }])
  })

  it('get ids and times as plain text with --raw, and JSON on a terminal too', async () => {
    const channel = String(json(await home.run(['channels', 'create', '{"name": "topic"}']))['id'])
    const created = await home.run(['subscription', 'create', channel, 'ops@example.com', '--raw'])
    expect(created).toMatchObject({ code: 0 })
    expect(created.stdout).toMatch(/^[0-9a-f-]{36}\n$/)
    const shown = await home.runOnTerminal(['subscription', 'create', `${channel}.a`, 'ops@example.com'])
    const [, blue = ''] = shown.stdout.split('\u001B[34mcreated: ')
    expect(blue).toMatch(/^[0-9a-f-]{36}/)
    const raw = await home.runOnTerminal(['channels', 'get', channel, '-r'])
    expect(JSON.parse(raw.stdout)).toMatchObject({ id: channel })
    expect(
      (await home.runOnTerminal(['channels', 'get', channel], { environment: { NO_COLOR: '1' } })).stdout,
    ).not.toContain('\u001B')
  })

  it('pass JSON in a file or on standard input, and get an error for invalid JSON', async () => {
    writeFileSync(join(home.folder, 'client.json'), '{"name": "of a file"}')
    expect(json(await home.run(['clients', 'create', '@client.json']))['name']).toBe('of a file')
    expect(json(await home.run(['clients', 'create', '-'], { input: '{"name": "of a pipe"}' }))['name']).toBe(
      'of a pipe',
    )
    const wrong = await home.run(['clients', 'create', '{name: x}'])
    expect(wrong.code).toBe(1)
    expect(wrong.stderr).toContain('<JSON_client> is not JSON')
  })

  it('get the message of the server, and advice', async () => {
    const unknown = await home.run(['clients', 'get', '00000000-0000-4000-8000-000000000000'])
    expect(unknown).toMatchObject({ code: 1, stdout: '' })
    expect(unknown.stderr).toContain('error: entity not found')
    const foreign = await home.run(['clients', 'get', 'all', '00000000-0000-4000-8000-000000000000'])
    expect(foreign.stderr).toContain('not permitted in this domain')
    expect(foreign.stderr).toContain('--domain')
  })

  it('may stop reading', async () => {
    const script = `node cli/main.ts clients get all | head -c 1`
    const { spawnSync } = await import('node:child_process')
    const ended = spawnSync('bash', ['-o', 'pipefail', '-c', script], {
      cwd: join(import.meta.dirname, '..', '..'),
      env: home.environment,
      encoding: 'utf8',
    })
    expect(ended).toMatchObject({ status: 0, stderr: '', stdout: '{' })
  })
})

describe('a terminal', () => {
  it('is safe from control characters in names of devices', async () => {
    const name = 'a\u001B[2Jb\nc\u009B31md'
    const created = json(await home.run(['clients', 'create', JSON.stringify({ name })]))
    expect(created['name']).toBe(name)
    const shown = await home.runOnTerminal(['clients', 'get', 'all', '--limit', '100'])
    expect(shown.stdout).toContain('a�[2Jb�c�31md')
    const piped = await home.run(['clients', 'get', String(created['id'])])
    expect(piped.stdout).toContain('\\u001b')
    expect(piped.stdout).toContain('\\u009b')
  })
})

describe('files of bulk provisioning', () => {
  it('of Excel are read: UTF-16 with a byte order mark, tabs, semicolons', async () => {
    const rows = [
      ['name', 'tags'],
      ['Küche', 'a,b'],
      ['', ''],
    ]
    const files = [
      ['tabs.csv', Buffer.from(`\ufeff${rows.map((row) => row.join('\t')).join('\r\n')}`, 'utf16le')],
      ['semicolons.csv', Buffer.from(`\ufeffsep=;\r\n${rows.map((row) => row.join(';')).join('\r\n')}`)],
    ] as const
    for (const [name, bytes] of files) {
      writeFileSync(join(home.folder, name), bytes)
      const made = json<{ clients: { name: string }[] }>(await home.run(['provision', 'clients', name]))
      expect(made.clients).toMatchObject([{ name: 'Küche' }])
    }
    writeFileSync(join(home.folder, 'latin.csv'), Buffer.from('name\nKüche\n', 'latin1'))
    const refused = await home.run(['provision', 'clients', 'latin.csv'])
    expect(refused.stderr).toContain('latin.csv is not UTF-8, nor UTF-16 with a byte order mark')
  })

  const write = (name: string, text: string | Buffer) => {
    writeFileSync(join(home.folder, name), text)
    return name
  }

  it('with three bad lines of ten thousand are refused whole, and the lines are named', async () => {
    const lines = Array.from({ length: 10_000 }, (_, index) => `client ${index},ignored`)
    lines[16] = ',no name'
    lines[4999] = 'x'.repeat(1025)
    lines[9998] = 'a "quote" in it'
    const file = write('clients.csv', `${lines.join('\n')}\n`)
    const before = json<{ total: number }>(await home.run(['clients', 'get', 'all'])).total
    const ended = await home.run(['provision', 'clients', file])
    expect(ended).toMatchObject({ code: 1, stdout: '' })
    expect(ended.stderr).toContain('clients.csv, line 17: the name is missing')
    expect(ended.stderr).toContain('clients.csv, line 5000: the name is longer than 1024 characters')
    expect(ended.stderr).toContain('clients.csv, line 9999: is not CSV')
    expect(ended.stderr).toContain('3 entries of clients.csv are invalid: nothing was created')
    expect(json<{ total: number }>(await home.run(['clients', 'get', 'all'])).total).toBe(before)
    const rest = json<{ total: number; clients: { id: string }[] }>(
      await home.run(['provision', 'clients', file, '--skip-bad']),
    )
    expect(rest.total).toBe(9997)
    expect(rest.clients).toHaveLength(9997)
  })

  it('say which line the server refuses', async () => {
    const items = [{ name: 'fine' }, { name: 'bad', status: 'sleeping' }]
    const ended = await home.run(['provision', 'clients', write('refused.json', JSON.stringify(items))])
    expect(ended.code).toBe(1)
    expect(ended.stderr).toContain('refused.json: item 2: status')
    expect(ended.stderr).toContain('nothing was created')
  })

  it('connect every client of a file to every channel of it, in any form', async () => {
    const make = async (what: string, count: number) =>
      json<Record<string, { id: string }[]>>(
        await home.run([
          'provision',
          what,
          write(`${what}.json`, JSON.stringify(Array.from({ length: count }, () => ({})))),
        ]),
      )[what]?.map(({ id }) => id) ?? []
    const clients = await make('clients', 2)
    const channels = await make('channels', 3)
    const [first = '', second = ''] = clients
    const [one = '', two = '', three = ''] = channels
    const forms: [string, string, number][] = [
      ['subjects.json', JSON.stringify({ subjects: clients, objects: [one] }), 1],
      ['pairs.csv', `${first},${two}\n${second},\n`, 2],
      ['things.json', JSON.stringify([{ thing_id: first, channel_id: three }]), 3],
      ['newer.json', JSON.stringify([{ client_ids: [second], channel_ids: [three], types: ['Publish'] }]), 3],
    ]
    for (const [name, text, channelCount] of forms) {
      expect(await home.run(['provision', 'connect', write(name, text)])).toMatchObject({ code: 0, stdout: 'ok\n' })
      const found = json<{ total: number }>(await home.run(['clients', 'connections', first]))
      expect(found.total, name).toBe(channelCount)
    }
    expect(json<{ total: number }>(await home.run(['clients', 'connections', second])).total).toBe(3)
    expect((await home.run(['provision', 'connect', write('x.txt', '')])).stderr).toContain('.csv or .json')

    const [fresh = ''] = await make('clients', 1)
    const file = write('mixed.csv', `${fresh},${one}\nnobody,${one}\n${first},nothing\n`)
    const refused = await home.run(['provision', 'connect', file])
    expect(refused).toMatchObject({ code: 1, stdout: '' })
    expect(refused.stderr).toContain('mixed.csv, line 2: client "nobody" is not a lower-case UUID')
    expect(refused.stderr).toContain('mixed.csv, line 3: channel "nothing" is not a lower-case UUID')
    expect(json<{ total: number }>(await home.run(['clients', 'connections', fresh])).total).toBe(0)
    const items = write('mixed.json', JSON.stringify([{ client_ids: ['nobody'], channel_ids: [one] }]))
    expect((await home.run(['provision', 'connect', items])).stderr).toContain(
      'item 1: client "nobody" is not a lower-case UUID',
    )
    expect(await home.run(['provision', 'connect', file, '--skip-bad'])).toMatchObject({ code: 0, stdout: 'ok\n' })
    expect(json<{ total: number }>(await home.run(['clients', 'connections', fresh])).total).toBe(1)
  })

  it('have a header where the first row names columns, and connect pairs where that is asked for', async () => {
    const file = write(
      'header.csv',
      'name,secret,tags,metadata\npump,the-secret-of-the-pump,a;b,"{""floor"": 3}"\nvalve,,,\n',
    )
    const { clients } = json<{ clients: { id: string; name: string; tags: string[] }[] }>(
      await home.run(['provision', 'clients', file]),
    )
    expect(clients).toMatchObject([
      { name: 'pump', tags: ['a', 'b'], metadata: { floor: 3 }, credentials: { secret: 'the-secret-of-the-pump' } },
      { name: 'valve' },
    ])
    const unknown = await home.run(['provision', 'clients', write('unknown.csv', 'name,colour\npump,red\n')])
    expect(unknown).toMatchObject({ code: 1, stdout: '' })
    expect(unknown.stderr).toContain('line 1 has an unknown column "colour"; columns are id, name, secret')
    const { channels } = json<{ channels: { id: string }[] }>(
      await home.run(['provision', 'channels', write('channels.csv', 'name,description\none,first\ntwo,second\n')]),
    )
    const [pump, valve] = clients.map(({ id }) => id)
    const [one, two] = channels.map(({ id }) => id)
    const pairs = write('pairs-of-lines.csv', `client_id,channel_id\n${pump},${one}\n${valve},${two}\n`)
    const connected = await home.run(['provision', 'connect', pairs, '--pairs'])
    expect(connected).toMatchObject({ code: 0, stdout: 'ok\n' })
    expect(connected.stderr).toContain('creating 2 connections: 2 clients and 2 channels')
    expect(json<{ total: number }>(await home.run(['clients', 'connections', pump ?? ''])).total).toBe(1)
    const product = await home.run(['provision', 'connect', pairs])
    expect(product.stderr).toContain('creating 4 connections: 2 clients x 2 channels')
    expect(json<{ total: number }>(await home.run(['clients', 'connections', pump ?? ''])).total).toBe(2)
    const halves = await home.run(['provision', 'connect', write('halves.csv', `${pump},\n`), '--pairs'])
    expect(halves.stderr).toContain('line 1: has no channel')
  })

  it('are tried with --dry-run, which reports each entity and creates none, as deletions are', async () => {
    const clients = write('tried-clients.csv', 'name\ntried one\ntried two\n')
    const totalOf = async (group: string) => json<{ total: number }>(await home.run([group, 'get', 'all'])).total
    const before = [await totalOf('clients'), await totalOf('channels')]
    expect(json(await home.run(['provision', 'clients', clients, '--dry-run']))).toMatchObject({
      total: 2,
      changes: [
        { operation: 'client.create', name: 'tried one' },
        { operation: 'client.create', name: 'tried two' },
      ],
      rows: expect.arrayContaining([{ table: 'clients', created: 2, updated: 0, deleted: 0 }]),
    })
    const channels = write('tried-channels.json', '[{"name": "tried"}]')
    expect(json(await home.run(['provision', 'channels', channels, '--dry-run']))).toMatchObject({ total: 1 })
    expect([await totalOf('clients'), await totalOf('channels')]).toEqual(before)
    const made = json<{ clients: { id: string }[] }>(await home.run(['provision', 'clients', clients])).clients
    const channel =
      json<{ channels: { id: string }[] }>(await home.run(['provision', 'channels', channels])).channels[0]?.id ?? ''
    const pairs = write('tried-pairs.csv', made.map(({ id }) => `${id},${channel}\n`).join(''))
    const tried = json<{ rows: { table: string; created: number }[] }>(
      await home.run(['provision', 'connect', pairs, '--dry-run']),
    )
    expect(tried.rows).toMatchObject([{ table: 'connections', created: 2 }])
    expect(json<{ total: number }>(await home.run(['clients', 'connections', made[0]?.id ?? ''])).total).toBe(0)
    await home.run(['messages', 'send', channel, '[{"n": "a", "v": 1}, {"n": "b", "v": 2}]'])
    const deletion = json(await home.run(['messages', 'delete', channel, '--from', '0', '--dry-run']))
    expect(deletion).toMatchObject({
      total: 1,
      changes: [{ operation: 'channel.remove_messages', id: channel }],
      rows: [{ table: 'records', deleted: 2 }],
    })
    expect(json<{ total: number }>(await home.run(['messages', 'read', channel])).total).toBe(2)
    const ofRun = await home.run(['messages', 'read', channel, '--run', made[0]?.id ?? ''])
    expect(json<{ total: number }>(ofRun).total).toBe(0)
    await home.run(['messages', 'send', channel, '[{"n": "c", "v": 3}]'])
    const [newest] = json<{ messages: { message_id: string }[] }>(
      await home.run(['messages', 'read', channel, '--limit', '1', '--query', 'links=true']),
    ).messages
    const one = await home.run(['messages', 'read', channel, '--message-id', newest?.message_id ?? ''])
    expect(json<{ messages: object[] }>(one).messages).toMatchObject([{ name: 'c', value: 3 }])
  })

  it('of 250 channels are listed whole with --all, which selects no page', async () => {
    const lines = Array.from({ length: 250 }, (_, index) => `whole-${index}`)
    const file = write('whole.json', JSON.stringify(lines.map((name) => ({ name }))))
    expect(await home.run(['provision', 'channels', file])).toMatchObject({ code: 0 })
    const listed = json<{ total: number; channels: { name: string }[] }>(
      await home.run(['channels', 'get', 'all', '--name', 'whole-', '--all']),
    )
    expect(listed.total).toBe(250)
    expect(new Set(listed.channels.map(({ name }) => name))).toEqual(new Set(lines))
    expect(listed).not.toHaveProperty('next')
    for (const flag of [
      ['--limit', '5'],
      ['--offset', '5'],
      ['--query', 'cursor=x'],
    ])
      expect((await home.run(['channels', 'get', 'all', '--all', ...flag])).stderr).toContain(
        '--all must not be combined with limit, offset or cursor',
      )
    expect((await home.run(['search', 'pump', '--all'])).stderr).toContain(
      '--all requires a command that lists with pages',
    )
  })

  it('with an unknown field name are imported with a hint', async () => {
    const ended = await home.run(['clients', 'create', '{"name": "pump", "tgas": ["a"]}'])
    expect(ended.code).toBe(0)
    expect(ended.stderr).toBe('hint: tgas: did you mean tags?\n')
    const listed = await home.run(['clients', 'get', 'all', '--query', 'stauts=all'])
    expect(listed.stderr).toBe('hint: stauts: did you mean status?\n')
  })

  it('are not required for a first try', async () => {
    const { stdout, code } = await home.run(['provision', 'test'])
    expect(code).toBe(0)
    const [user, tokens, clients, channels] = JSON.parse(`[${stdout.replaceAll(/^([}\]])\n(?=[[{])/gm, '$1,')}]`) as [
      { email: string },
      { access_token: string },
      { name: string }[],
      { id: string }[],
    ]
    expect(user.email).toMatch(/@email\.com$/)
    expect(tokens.access_token).toBeDefined()
    expect(clients).toHaveLength(2)
    expect(channels).toHaveLength(2)
  })
})

describe('long work', () => {
  it('of a task takes one command for upload, start and result', async () => {
    const result = json(await home.run(['tasks', 'run', ADD, '--inputs', '1,2', '--wait', '--rm']))
    expect(result).toMatchObject({ state: 3, results: [3] })
    expect((await home.run(['tasks', 'get', String(result['task_id'])])).code).toBe(1)
  })

  it('that failed ends with 1 and the reason', async () => {
    const ended = await home.run(['tasks', 'run', ADD, '--inputs', '1,2', '--function', 'nothing', '--wait'])
    expect(ended.code).toBe(1)
    expect(ended.stderr).toContain('nothing')
    expect((await home.run(['tasks', 'run', 'nowhere.wasm'])).stderr).toContain('file nowhere.wasm not found')
  })

  it('takes inputs as JSON, and shows the state by its name on a terminal', async () => {
    const result = json(await home.run(['tasks', 'run', ADD, '--inputs', '[40, "2"]', '--wait']))
    expect(result).toMatchObject({ state: 3, results: [42] })
    const shown = await home.runOnTerminal(['tasks', 'run', ADD, '--inputs', '1,2', '--wait', '--rm'])
    expect(shown.stdout).toMatch(/state\S*\s*\S*\s+completed/)
    const listed = json(await home.run(['tasks', 'get', 'all', '--state', 'completed', '--json'])) as unknown as {
      tasks: { state: number }[]
    }
    expect(new Set(listed.tasks.map(({ state }) => state))).toEqual(new Set([3]))
    const refused = await home.run(['tasks', 'get', 'all', '--state', 'done'])
    expect(refused.stderr).toContain('--state must be one of pending, scheduled')
    await home.run(['tasks', 'delete', String(result['task_id'])])
  })

  it('leaves no task behind if its module was refused', async () => {
    const ended = await home.run(['tasks', 'run', import.meta.filename, '--name', 'refused'])
    expect(ended.code).toBe(1)
    expect(ended.stderr).not.toContain('not started')
    expect((await home.run(['tasks', 'run', 'no-such-image', '--name', 'refused'])).code).toBe(1)
    expect((await home.run(['tasks', 'get', 'all', '--name', 'refused', '--raw'])).stdout).toContain('"total": 0')
  })

  it('of an invocation has its output in logs, which report when there is none', async () => {
    const result = json(await home.run(['tasks', 'run', ADD, '--inputs', '1,2', '--wait']))
    const taskId = String(result['task_id'])
    const logs = await home.run(['tasks', 'logs', taskId])
    expect(logs).toMatchObject({ code: 0, stdout: '' })
    expect(logs.stderr).toContain(`skein tasks runs ${taskId}`)
    await home.run(['tasks', 'delete', taskId])
  })

  it('of a task that starts automatically is followed from run to run', async () => {
    const task = JSON.stringify({ name: 'yearly', schedule: '0 0 1 1 *', cli_args: ['greetings'] })
    const taskId = String(json(await home.run(['tasks', 'create', task]))['id'])
    await home.run(['tasks', 'upload', taskId, HELLO])
    const count = (text: string) => text.match(/greetings/g)?.length ?? 0
    await home.run(['tasks', 'invoke', taskId])
    let seen = ''
    const following = home.run(['tasks', 'logs', taskId, '-f'], {
      interruptWhen: (text) => {
        seen = text
        return count(text) === 3
      },
    })
    for (const runs of [1, 2, 3]) {
      await until(() => count(seen) === runs, `the output of run ${runs}`, 60_000)
      if (runs < 3) await home.run(['tasks', 'invoke', taskId])
    }
    const ended = await following
    expect(ended.code).toBe(0)
    expect(count(ended.stdout)).toBe(3)
    await home.run(['tasks', 'delete', taskId, '--force'])
  })

  it('shows its progress on a terminal, and how to continue after an interruption', async () => {
    const ended = await home.runOnTerminal(['tasks', 'run', ENDLESS, '--wait'], {
      interruptWhen: (text) => text.includes('is running'),
    })
    expect(ended.code).toBe(1)
    expect(ended.stdout).toContain('uploading endless.wasm [')
    const [, taskId = ''] = /the task continues: skein tasks results ([0-9a-f-]{36})/.exec(ended.stdout) ?? []
    expect(json(await home.run(['tasks', 'stop', taskId]))).toMatchObject({ stopped: true })
  })

  it('of following ends with 0 when the user interrupts it', async () => {
    const channel = String(json(await home.run(['channels', 'create', '{"name": "followed"}']))['id'])
    let isSeen = false
    const following = home.run(['messages', 'tail', channel], {
      interruptWhen: (text) => (isSeen = text.includes('"payload"')),
    })
    await until(
      async () => {
        await home.run(['messages', 'send', `${channel}.x`, '[{"n":"t","v":1}]'])
        return isSeen
      },
      'a message is followed',
      90_000,
    )
    const ended = await following
    expect(ended.code).toBe(0)
    expect(JSON.parse(ended.stdout.split('\n')[0] ?? '')).toMatchObject({ subtopic: 'x', payload: [{ n: 't', v: 1 }] })
  })
})

describe('the doctor', () => {
  it('reports a healthy installation as healthy', async () => {
    const ended = await home.run(['doctor'])
    expect(ended.code).toBe(0)
    const { findings } = json<{ findings: { verdict: string; what: string }[] }>(ended)
    // A busy machine is reported as slow, and the domains of these tests have no quotas.
    const isOfTests = /is slow: \d+ ms|^domains have no limit of /
    expect(findings.filter(({ verdict, what }) => verdict !== 'ok' && !isOfTests.test(what))).toEqual([])
    const said = findings.map(({ what }) => what).join('\n')
    expect(said).toMatch(/ is ready: program, .*database, changelog/)
    expect(said).toMatch(/^embedded PostgreSQL \d+.*GiB, .* free$/m)
    expect(said).toMatch(/^database: durable \(synchronous_commit=on\), no standby$/m)
  })

  it('names a domain that has more than its quota, and no longer when it was raised', async () => {
    const full = String(json(await home.run(['domains', 'create', 'Full', 'full']))['id'])
    const setQuotas = async (own: object) =>
      json(await home.run(['domains', 'update', 'quotas', full, JSON.stringify(own)]))
    const named = async () =>
      json<{ findings: { what: string }[] }>(await home.run(['doctor']))
        .findings.map(({ what }) => what)
        .filter((what) => what.includes('than its quota'))
    json(await home.run(['groups', 'create', '{"name": "one"}', full]))
    await setQuotas({ groups: 0 })
    expect(await named()).toEqual([`domain Full (${full}) has more than its quota of groups (1 of 0)`])
    await setQuotas({ groups: 1 })
    expect(await named()).toEqual([])
  })

  it('reports what is wrong: an address, a login, a file that others can read', async () => {
    using at = newHome()
    await logIn(at)
    const { chmodSync } = await import('node:fs')
    chmodSync(join(at.folder, 'skein', 'contexts.json'), 0o644)
    const ended = await at.runOnTerminal(['doctor', '--certs-url', 'http://127.0.0.1:1'])
    expect(ended.code).toBe(1)
    expect(ended.stdout).toContain('connection refused by http://127.0.0.1:1 (certs; address: flag (certs_url))')
    expect(ended.stdout).toContain('other users can read')
    expect(ended.stdout).toContain('no domain in use')
  })
})

describe('skein up', () => {
  it('starts everything and stops it at Ctrl-C', async () => {
    using other = await createInstallation()
    using at = createHome(other.environment)
    const ended = await at.run(['up'], { interruptWhen: (text) => text.includes('is running') })
    expect(ended.stdout).toContain('is running')
    expect(ended.code).toBe(0)
  })
})
