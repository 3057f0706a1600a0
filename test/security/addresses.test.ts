/**
 * Addresses that users give: webhooks, registries, token realms, redirects. None of them leads into the network of
 * Skein, however it is written, and a connection goes to the address that was checked (task-manager.md section 6, rule 9).
 */
import { createServer } from 'node:http'
import type { Server } from 'node:http'
import { hostname } from 'node:os'
import type { AddressInfo } from 'node:net'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { isPublicAddress } from '#core/public-address.ts'
import { postWebhook } from '../../api/provisioning/notifications/webhook.ts'
import { TransferClient } from '#core/transfer/index.ts'
import { createAuth, checkedDial } from '../../proxy/oci/index.ts'
import { importsOf, productSources } from '../architecture/source-imports.ts'
import type { SourceFile } from '../architecture/source-imports.ts'
import { startTestApi } from '../harness/api.ts'
import type { TestApi, TestUser } from '../harness/api.ts'
import { WASM, startRegistry } from '../proxy/misbehaving-registry.ts'
import { runProxy } from '../proxy/running-proxy.ts'

const LIMITS = { headersMs: 10_000, stallMs: 10_000 }
const DEADLINE_MS = 10_000

/** One host of each way to write an inner address in a URL. */
const INNER: readonly (readonly [string, string])[] = [
  ['loopback', '127.0.0.1'],
  ['the end of loopback', '127.255.255.254'],
  ['this host', '0.0.0.0'],
  ['10/8', '10.0.0.1'],
  ['172.16/12', '172.31.255.255'],
  ['192.168/16', '192.168.1.1'],
  ['carrier-grade NAT', '100.64.0.1'],
  ['link-local, metadata of clouds', '169.254.169.254'],
  ['benchmarks', '198.18.0.1'],
  ['multicast', '224.0.0.1'],
  ['broadcast', '255.255.255.255'],
  ['reserved', '240.0.0.1'],
  ['documentation', '203.0.113.1'],
  ['one decimal number', '2130706433'],
  ['one octal number', '017700000001'],
  ['one hexadecimal number', '0x7f000001'],
  ['octal parts', '0177.0.0.01'],
  ['hexadecimal parts', '0x7f.0x0.0x0.0x1'],
  ['two parts', '127.1'],
  ['three parts', '10.0.1'],
  ['mixed parts', '0xa.0.01'],
  ['a trailing dot', '127.0.0.1.'],
  ['full-width digits', '１２７.０.０.１'],
  ['ideographic dots', '127。0。0。1'],
  ['percent encoding', '%31%32%37.0.0.1'],
  ['IPv6 loopback', '[::1]'],
  ['IPv6 unspecified', '[::]'],
  ['IPv6 link-local', '[fe80::1]'],
  ['IPv6 site-local', '[fec0::1]'],
  ['IPv6 unique local', '[fd00::1]'],
  ['IPv6 multicast', '[ff02::1]'],
  ['IPv4-mapped', '[::ffff:127.0.0.1]'],
  ['IPv4-mapped in hexadecimal', '[::ffff:7f00:1]'],
  ['IPv4-compatible', '[::127.0.0.1]'],
  ['IPv4-translated', '[::ffff:0:127.0.0.1]'],
  ['NAT64', '[64:ff9b::7f00:1]'],
  ['NAT64 of a network', '[64:ff9b:1::7f00:1]'],
  ['6to4', '[2002:7f00:1::1]'],
  ['6to4 of 10/8', '[2002:a00:1::]'],
  ['Teredo', '[2001:0:7f00:1::1]'],
  ['IPv6 documentation', '[2001:db8::1]'],
  ['discard only', '[100::1]'],
  ['segment routing', '[5f00::1]'],
]
/** Names that resolve to inner addresses on every machine. */
const NAMES: readonly (readonly [string, string])[] = [
  ['localhost', 'localhost'],
  ['localhost in capitals', 'LOCALHOST'],
]
/** Names that lead inside on some machines, and nowhere on others. */
const DOUBTFUL: typeof NAMES = [
  ['localhost with a trailing dot', 'localhost.'],
  ['below localhost', 'inner.localhost'],
  ['a name of IPv6 loopback', 'ip6-localhost'],
]

/** Whatever reaches loopback is counted here. */
let inner: Server
let port: number
let reached = 0
let api: TestApi
let user: TestUser
let channel: string
beforeAll(async () => {
  inner = createServer((_request, response) => {
    reached++
    response.end('inner')
  })
  await new Promise<void>((resolve) => inner.listen(0, resolve))
  ;({ port } = inner.address() as AddressInfo)
  api = await startTestApi()
  user = await api.newUser()
  const domain = (await user.call('POST', '/domains', { name: 'posts' })).json<{ id: string }>().id
  const made = (await user.call('POST', `/${domain}/channels`, { name: 'data' })).json<{ id: string }>()
  channel = `m/${domain}/c/${made.id}`
})
afterAll(async () => {
  inner.closeAllConnections()
  inner.close()
  await api[Symbol.asyncDispose]()
  expect(reached, 'requests that reached loopback').toBe(0)
})

const post = (contact: string, privateHosts: readonly string[] = []) =>
  postWebhook(contact, {
    body: '{}',
    secret: 's',
    privateHosts,
    deadlineMs: DEADLINE_MS,
    signal: new AbortController().signal,
  })

describe('a webhook', () => {
  test.each(INNER)('to %s (%s) is refused at the subscription and at the delivery', async (_what, host) => {
    const contact = `https://${host}:${port}/`
    const answer = await user.call('POST', '/subscriptions', { topic: channel, contact })
    expect(answer.status, answer.text).toBe(400)
    expect(answer.json()).toMatchObject({ error: 'malformed', details: [{ path: '/contact' }] })
    // As one that was subscribed while SKEIN_WEBHOOK_HOSTS still named it.
    await expect(post(contact)).rejects.toMatchObject({ kind: 'forbidden' })
  })

  test.each(NAMES)('to %s is refused by the address of the name', async (_what, host) => {
    await expect(post(`https://${host}:${port}/`)).rejects.toMatchObject({ kind: 'forbidden' })
  })

  test.each(DOUBTFUL)('to %s connects to nothing', async (_what, host) => {
    await expect(post(`https://${host}:${port}/`)).rejects.toThrow()
  })

  test('over plain HTTP, with a password, or of another scheme is refused', async () => {
    for (const contact of [
      'http://example.com/',
      'https://user:pass@example.com/',
      'https://user@127.0.0.1/',
      'ftp://example.com/',
      'file:///etc/passwd',
      'gopher://127.0.0.1/',
      `//127.0.0.1:${port}/`,
    ]) {
      const answer = await user.call('POST', '/subscriptions', { topic: channel, contact })
      expect(answer.status, contact).toBe(400)
    }
    await expect(post(`http://127.0.0.1:${port}/`)).rejects.toMatchObject({ kind: 'forbidden' })
  })

  test('follows no redirect', async () => {
    const redirecting = createServer((_request, response) => {
      response.writeHead(307, { location: `http://127.0.0.1:${port}/` }).end()
    })
    await new Promise<void>((resolve) => redirecting.listen(0, '127.0.0.1', resolve))
    try {
      const own = (redirecting.address() as AddressInfo).port
      expect(await post(`http://127.0.0.1:${own}/`, [`127.0.0.1:${own}`])).toBe(307)
    } finally {
      redirecting.closeAllConnections()
      redirecting.close()
    }
  })
})

describe('the module proxy', () => {
  const policy = { listedHosts: [], configuredAuthorities: [] }
  const dial = (url: URL) => checkedDial(url, policy)
  const transport = new TransferClient({ userAgent: 'test', limits: LIMITS, dial })
  afterAll(() => transport.close())
  const get = (url: string) => transport.get(new URL(url), {}, AbortSignal.timeout(DEADLINE_MS))

  test.each([...INNER, ...NAMES])('sends no request to a registry at %s (%s)', async (_what, host) => {
    for (const scheme of ['https', 'http'])
      await expect(get(`${scheme}://${host}:${port}/v2/`)).rejects.toMatchObject({ kind: 'forbidden' })
  })

  test.each(DOUBTFUL)('connects to nothing at %s', async (_what, host) => {
    await expect(get(`http://${host}:${port}/v2/`)).rejects.toThrow()
  })

  test.each([...INNER, ...NAMES])('sends no request to a token realm at %s (%s)', async (_what, host) => {
    const auth = createAuth({ transport, configured: undefined })
    const scope = {
      registry: 'registry.example.com',
      repository: 'acme/add',
      baseUrl: new URL('https://registry.example.com'),
      actions: 'pull',
    } as const
    for (const scheme of ['https', 'http']) {
      const challenge = `Bearer realm="${scheme}://${host}:${port}/token",service="registry.example.com"`
      await expect(auth.answer(scope, challenge, AbortSignal.timeout(DEADLINE_MS))).rejects.toMatchObject({
        kind: expect.stringMatching(/^(forbidden|unauthenticated|malformed)$/) as unknown,
      })
    }
  })

  test('follows no redirect of a listed registry to an unlisted host', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { SKEIN_PROXY_HTTP_HOSTS: `127.0.0.1:${registry.port}` } })
    for (const location of [
      `http://127.0.0.1:${port}/blob`,
      `http://localhost:${port}/blob`,
      `http://[::1]:${port}/blob`,
      `https://2130706433:${port}/blob`,
      `https://[::ffff:127.0.0.1]:${port}/blob`,
      `//127.0.0.1:${port}/blob`,
    ]) {
      const name = `m${Math.abs(location.length)}${location.charCodeAt(7)}`
      registry.module(name, 'latest', WASM)
      registry.intercept((_request, response, path) => {
        if (!path.includes(`${name}/blobs/`)) return false
        response.writeHead(307, { location }).end()
        return true
      })
      await expect(proxy.bring(`127.0.0.1:${registry.port}/${name}`), location).rejects.toThrow()
    }
  })

  test('sends no request to a realm that a listed registry names elsewhere', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { SKEIN_PROXY_HTTP_HOSTS: `127.0.0.1:${registry.port}` } })
    registry.module('m', 'latest', WASM)
    registry.intercept((_request, response) => {
      response.writeHead(401, { 'www-authenticate': `Bearer realm="http://127.0.0.1:${port}/token"` }).end()
      return true
    })
    await expect(proxy.resolve(`127.0.0.1:${registry.port}/m`)).rejects.toThrow()
  })
})

test('the own names of the machine are internal addresses too, unless they are public', async () => {
  const { lookup } = await import('node:dns/promises')
  const found = await lookup(hostname(), { all: true }).catch(() => [])
  // Refused by its address, or not found: a name that only the hosts file contains is not accepted for a public contact.
  if (found.some(({ address }) => !isPublicAddress(address)))
    await expect(post(`https://${hostname()}:${port}/`)).rejects.toThrow()
  else expect(found.every(({ address }) => isPublicAddress(address))).toBe(true)
})

/** Of Node's own modules what opens connections, and not what listens, parses or only describes. */
const MODULES = /^node:(http|https|http2|net|tls|dgram)$/
const OPENS = /^(request|get|connect|createConnection|createSocket|Socket|TLSSocket|Agent|ClientRequest|fetch)\b/
const PACKAGES = /^(undici|ws|nodemailer|redis|pg|@grpc\/grpc-js|@redis\/.*)$/
const GLOBALS = /(?<![.\w'`])(fetch|new WebSocket|new EventSource)\s*\(/
const NAMED = /^import \{([^}]*)\} from '([^']+)'/gm

function opensConnections(file: SourceFile): boolean {
  const named = [...file.text.matchAll(NAMED)].some(
    ([, names = '', from = '']) =>
      MODULES.test(from) &&
      names.split(',').some((name) => OPENS.test(name.trim()) && !name.trim().startsWith('type ')),
  )
  const whole = importsOf(file).imports.some(({ to, isType }) => !isType && PACKAGES.test(to))
  return named || whole || GLOBALS.test(file.text)
}

test('every file that can open a connection is on the reviewed list, with its reason', () => {
  const found = productSources()
    .filter(({ path }) => !path.startsWith('cli/'))
    .filter(opensConnections)
    .map(({ path }) => path)
  const listed = readFileSync(join(import.meta.dirname, 'dialing.txt'), 'utf8')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => line.split(/\s{2,}/))
  for (const [path, reason] of listed) expect(reason, `${path} needs a reason`).toMatch(/\S/)
  expect(found).toEqual(listed.map(([path]) => path ?? '').toSorted((one, other) => (one < other ? -1 : 1)))
  for (const [path, reason] of listed) {
    if (reason?.startsWith('judged') !== true) continue
    const judge = /^judged by (\S+)/.exec(reason)?.[1] ?? path
    const file = productSources().find((one) => one.path === judge)
    expect(file?.text, `${judge} judges addresses`).toMatch(/core\/public-address\.ts/)
  }
})
