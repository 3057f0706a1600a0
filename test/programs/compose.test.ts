// The reference deployment: docker-compose.yml, Dockerfile, deploy/. What a container engine would be needed for is not tested.
import { X509Certificate } from 'node:crypto'
import { existsSync, readFileSync, statSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { createServer as createTlsServer } from 'node:https'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { readConfigs, unknownVariables } from '#core/config/index.ts'
import { parseDurationMs } from '#core/time.ts'
import { health } from '../harness/health.ts'
import { PROGRAM_SETTINGS } from '../../tools/generate/index.ts'
import {
  ROOT,
  environmentOf,
  interpolationsOf,
  prepare,
  programOf,
  readCompose,
  readDockerfile,
} from './deployment-files.ts'
import type { Prepared } from './deployment-files.ts'

const compose = readCompose()
const services = Object.entries(compose.services)
const ours = services.flatMap(([name, service]) => {
  const program = programOf(service)
  return program === undefined ? [] : [{ name, service, program }]
})

let prepared: Prepared
beforeAll(async () => {
  prepared = await prepare('skein.example.com')
})
afterAll(() => prepared[Symbol.dispose]())

describe('docker-compose.yml', () => {
  it('runs every program, two nodes of the platform, two task managers and two workers among them', () => {
    const programs = ['api', 'api', 'manager', 'manager', 'proxy', 'worker', 'worker']
    expect(ours.map(({ program }) => program).toSorted()).toEqual(programs)
  })

  it.each(services)('%s has a health check, a read-only root and no unneeded rights', (_name, service) => {
    expect(service.healthcheck?.test[0]).toBe('CMD')
    expect(service.read_only).toBe(true)
    expect(service.cap_drop).toEqual(['ALL'])
    expect(service.security_opt).toContain('no-new-privileges:true')
  })

  it.each(services)('%s has limits of memory, processor time and processes', (_name, service) => {
    expect(service.cpus).toBeGreaterThan(0)
    expect(service.mem_limit).toMatch(/^\d+[mg]$/)
    expect(service.pids_limit).toBeGreaterThan(0)
  })

  it.each(ours)('every variable of $name is a setting of its program with a valid value', ({ service, program }) => {
    const settings = PROGRAM_SETTINGS[program] ?? []
    const environment = environmentOf(service, prepared.variables)
    expect(unknownVariables(settings, service.environment ?? {}, ['SKEIN_', 'PROXY_'])).toEqual([])
    expect(() => readConfigs(Object.fromEntries(settings.entries()), environment)).not.toThrow()
    // Nothing but settings: another name would be a misspelt one.
    expect(Object.keys(service.environment ?? {}).filter((name) => !/^(SKEIN|PROXY)_/.test(name))).toEqual([])
  })

  it.each(ours.filter(({ program }) => program !== 'api'))('$name speaks TLS to the others', ({ service, program }) => {
    const environment = environmentOf(service, prepared.variables)
    expect(environment['SKEIN_GRPC_INSECURE']).toBeUndefined()
    const names = program === 'worker' ? ['SKEIN_GRPC_TLS_CA'] : ['SKEIN_GRPC_TLS_CERT', 'SKEIN_GRPC_TLS_KEY']
    for (const name of names) {
      const secret = /^\/run\/secrets\/(\w+)$/.exec(environment[name] ?? '')?.[1]
      expect(service.secrets, name).toContain(secret)
    }
  })

  it('a required secret has no default, and deploy/prepare.sh creates exactly the required ones', () => {
    const both = [...services, ...Object.entries(readCompose('deploy/ha/compose.yml').services)]
    const uses = both.flatMap(([, { environment = {} }]) =>
      Object.values(environment).map(String).flatMap(interpolationsOf),
    )
    const required = new Set(uses.filter(({ operator }) => operator === ':?').map(({ name }) => name))
    expect([...required].toSorted()).toEqual(Object.keys(prepared.variables).toSorted())
    const defaults = uses.filter(({ operator, operand }) => operator !== ':?' && operand !== '')
    expect(defaults).toEqual([{ name: 'PROXY_AUTHENTICATE', operator: ':-', operand: 'false' }])
    // The address of the manager is one within the network of the services.
    for (const { service } of ours) {
      for (const [name, value] of Object.entries(service.environment ?? {})) {
        if (name !== 'SKEIN_PROXY_MANAGER_URL' && /SECRET|TOKEN|PASSWORD|_URL$/.test(name))
          expect(value, name).toMatch(/\$\{/)
      }
    }
  })

  it('every file that it names is in the tree, or created by deploy/prepare.sh', () => {
    const paths = services.flatMap(([, { command = [], healthcheck, volumes = [] }]) => [
      ...[...command, ...(healthcheck?.test ?? [])].filter((word) => /^[a-z]+\/.*\.m?js$/.test(word)),
      ...volumes.map((volume) => volume.split(':')[0] ?? '').filter((source) => source.startsWith('.')),
    ])
    expect(paths.length).toBeGreaterThanOrEqual(ours.length * 2)
    expect(paths.filter((path) => !existsSync(join(ROOT, path)))).toEqual([])
    const secrets = Object.values(compose.secrets).map(({ file }) => join(prepared.folder, file))
    expect(secrets.filter((path) => !existsSync(path))).toEqual([])
  })

  it('declares every volume, network and secret that a service uses', () => {
    for (const [name, { volumes = [], networks, secrets = [] }] of services) {
      const named = volumes.map((volume) => volume.split(':')[0] ?? '').filter((source) => !source.startsWith('.'))
      expect(Object.keys(compose.volumes), name).toEqual(expect.arrayContaining(named))
      const joined = Array.isArray(networks) ? networks : Object.keys(networks)
      expect(Object.keys(compose.networks), name).toEqual(expect.arrayContaining(joined))
      expect(Object.keys(compose.secrets), name).toEqual(expect.arrayContaining(secrets))
    }
  })

  it('nodes that share a database share a Redis, which requires its password and stores nothing', () => {
    const { redis } = compose.services
    expect(redis?.environment?.['REDISCLI_AUTH']).toMatch(/^\$\{REDIS_PASSWORD:\?/)
    expect(redis?.command?.at(-1)).toContain('requirepass')
    expect(redis?.volumes).toBeUndefined()
    const shared = ours.filter(({ service }) => service.environment?.['SKEIN_DATABASE_URL'] !== undefined)
    expect(shared.map(({ name }) => name)).toEqual(['api-1', 'api-2', 'manager-1', 'manager-2'])
    for (const { service } of shared)
      expect(environmentOf(service, prepared.variables)['SKEIN_REDIS_URL']).toBe(
        `redis://default:${prepared.variables['REDIS_PASSWORD']}@redis:6379`,
      )
  })

  it('only the two proxies are reached from outside, and what they cannot carry: CoAP', () => {
    const opened = services.flatMap(([name, { ports = [] }]) => ports.map((port) => `${name} ${port}`))
    const direct = opened.filter((port) => !port.startsWith('edge '))
    const settings = (PROGRAM_SETTINGS['api'] ?? []).flatMap((group) => Object.values(group))
    const inside = (setting: string) => settings.find(({ name }) => name === setting)?.defaultText ?? ''
    const coap = inside('SKEIN_COAP_PORT')
    const mqtts = inside('SKEIN_MQTTS_PORT')
    expect(direct.toSorted()).toEqual([
      `api-1 ${coap}:${coap}/udp`,
      // Each node has a port of its own.
      `api-2 5693:${coap}/udp`,
      `mqtt ${mqtts}:${mqtts}`,
    ])
  })

  it('each worker knows both task managers by names that their certificate has', () => {
    const managers = ours.filter(({ program }) => program === 'manager').map(({ name }) => name)
    const certificate = new X509Certificate(readFileSync(join(prepared.folder, 'deploy/certs/cluster.pem')))
    for (const { service } of ours.filter(({ program }) => program === 'worker')) {
      const addresses = service.environment?.['SKEIN_WORKER_MANAGER']?.split(',') ?? []
      expect(addresses).toEqual(managers.map((name) => `${name}:7071`))
      for (const name of managers) expect(certificate.checkHost(name)).toBe(name)
    }
  })

  it('only workers run as root, with the rights for separate users of guests and no others', () => {
    for (const { service, program } of ours) {
      const isWorker = program === 'worker'
      expect(service.user).toBe(isWorker ? '0:0' : undefined)
      expect(service.cap_add ?? []).toEqual(isWorker ? ['SETUID', 'SETGID', 'KILL'] : [])
      expect(environmentOf(service, prepared.variables)['SKEIN_WORKER_ISOLATION']).toBe(isWorker ? 'uid' : undefined)
    }
  })

  it('guests have no access to the database and the network', () => {
    for (const { service } of ours.filter(({ program }) => program === 'worker')) {
      expect(service.networks).toEqual(['cluster'])
      expect(compose.networks['cluster']?.internal).toBe(true)
    }
    expect(compose.networks['database']?.internal).toBe(true)
  })

  it('the platform believes the addresses of the two proxies and no other', () => {
    const addresses = ['edge', 'mqtt'].map((name) => {
      const { networks } = compose.services[name] as { networks: Record<string, { ipv4_address: string }> }
      return networks['front']?.ipv4_address
    })
    const trusted = ours
      .map(({ service }) => service.environment?.['SKEIN_TRUST_PROXY'])
      .filter((one) => one !== undefined)
    expect(new Set(trusted)).toEqual(new Set([addresses.join(',')]))
    // No other container can be given one of them.
    const [pool] = compose.networks['front']?.ipam?.config ?? []
    expect(pool?.ip_range).toBe('172.30.77.128/25')
    for (const address of addresses) expect(Number(address?.split('.')[3])).toBeLessThan(128)
  })
})

describe('deploy/', () => {
  it('the reverse proxy forwards to the ports of the programs', () => {
    const text = readFileSync(join(ROOT, 'deploy/Caddyfile'), 'utf8')
    const upstreams = [...text.matchAll(/reverse_proxy .*\{\$\w+:([^}]*)\}/g)].flatMap(([, list = '']) =>
      list.split(' '),
    )
    const ports: Record<string, string> = { api: 'SKEIN_HTTP_PORT', manager: 'SKEIN_MANAGER_HTTP_PORT' }
    const expected = ours.flatMap(({ name, program }) => {
      const settings = (PROGRAM_SETTINGS[program] ?? []).flatMap((group) => Object.values(group))
      const port = settings.find((setting) => setting.name === ports[program])?.defaultText
      return port === undefined ? [] : [`${name}:${port}`]
    })
    expect(new Set(upstreams)).toEqual(new Set(expected))
  })

  it('the load balancer of MQTT leads to every node and says the address of the device', () => {
    const text = readFileSync(join(ROOT, 'deploy/haproxy.cfg'), 'utf8')
    const servers = [...text.matchAll(/^ {2}server (\S+) (\S+)$/gm)].map(([, name, address]) => `${name} ${address}`)
    const nodes = ours.filter(({ program }) => program === 'api').map(({ name }) => name)
    expect(servers).toEqual(nodes.map((name) => `${name} ${name}:8883`))
    expect(text).toMatch(/^ {2}default-server check port 8080 .*\bsend-proxy-v2\b/m)
    expect(text).toMatch(/^ {2}bind :8883$/m)
  })

  it('secrets are long, differ, and only their owner reads them', async () => {
    using second = await prepare('skein.example.com')
    for (const name of [
      'POSTGRES_PASSWORD',
      'PATRONI_PASSWORD',
      'REDIS_PASSWORD',
      'SKEIN_SECRET_KEY',
      'SKEIN_ADMIN_SECRET',
      'SKEIN_WORKER_TOKEN',
      'SKEIN_PROXY_TOKEN',
    ]) {
      expect(prepared.variables[name]?.length).toBeGreaterThanOrEqual(32)
      expect(prepared.variables[name]).not.toBe(second.variables[name])
    }
    expect(statSync(join(prepared.folder, 'deploy/skein.env')).mode & 0o077).toBe(0)
    expect(statSync(join(prepared.folder, 'deploy/certs')).mode & 0o077).toBe(0)
  })

  it('a health check over HTTP fails without a response, and with one that is not ready', async () => {
    let body = '{"status":"degraded","checks":{"redis":{"status":"degraded","reason":"away"}}}'
    const server = createServer((_request, response) => response.end(body))
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/ready`
    expect(await health('ready', url)).toBe('healthy')
    body = '{"status":"unavailable","checks":{"database":{"status":"unavailable","reason":"it does not answer"}}}'
    expect(await health('ready', url)).toBe(`${url} is unavailable (database: it does not answer)`)
    body = 'welcome'
    expect(await health('ready', url)).toBe(`${url} gave no readiness report`)
    await new Promise((resolve) => server.close(resolve))
    expect(await health('ready', url)).toMatch(/ECONNREFUSED/)
    expect(await health('pulse')).toMatch(/^the first argument must be one of/)
  })

  it('a health check over TLS requires the configured certificate', async () => {
    using local = await prepare('localhost')
    const pem = (name: string) => join(local.folder, 'deploy/certs', name)
    const tls = { cert: readFileSync(pem('cluster.pem')), key: readFileSync(pem('cluster.key')) }
    const server = createTlsServer(tls, (_request, response) => response.end('{"status":"ready","checks":{}}'))
    await new Promise<void>((resolve) => server.listen(0, resolve))
    const url = `https://localhost:${(server.address() as AddressInfo).port}/ready`
    expect(await health('ready', url, pem('cluster.pem'))).toBe('healthy')
    expect(await health('ready', url, pem('edge.pem'))).toMatch(/certificate/)
    await new Promise((resolve) => server.close(resolve))
  })

  it('a node receives no new requests before it closes its listeners', () => {
    const text = readFileSync(join(ROOT, 'deploy/Caddyfile'), 'utf8')
    expect(text).toMatch(/^\thealth_uri \/ready$/m)
    const proxies = [...text.matchAll(/reverse_proxy .* \{\n(.*)\n/g)].map(([, first = '']) => first.trim())
    expect(proxies).toEqual(['import balanced', 'import balanced', 'import balanced'])
    const balancer = readFileSync(join(ROOT, 'deploy/haproxy.cfg'), 'utf8')
    expect(balancer).toMatch(/^ {2}option httpchk GET \/ready$/m)
    const intervalsMs = [/^\thealth_interval (\d+)s$/m.exec(text), /\binter (\d+)s\b/.exec(balancer)].map(
      (match) => Number(match?.[1]) * 1000,
    )
    const intervalMs = Math.max(...intervalsMs)
    const delays = ours.flatMap(({ service }) => service.environment?.['SKEIN_STOP_DELAY'] ?? [])
    expect(delays.length).toBeGreaterThan(1)
    for (const delay of delays) expect(parseDurationMs(delay)).toBeGreaterThan(2 * intervalMs)
  })
})

describe('Dockerfile', () => {
  const lines = readDockerfile()
  const copied = lines
    .filter((line) => line.startsWith('COPY ') && !line.includes('--from='))
    .flatMap((line) => line.slice(5).trim().split(/\s+/).slice(0, -1))

  it('copies the files of the programs, and each exists', () => {
    expect(copied.filter((path) => !existsSync(join(ROOT, path)))).toEqual([])
    const { imports } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
      imports: Record<string, string>
    }
    const rooms = Object.values(imports).map((path) => path.split('/')[1] ?? '')
    expect(copied).toEqual(
      expect.arrayContaining([
        ...rooms,
        'programs',
        'tools/build.ts',
        'migrations',
        'package.json',
        'package-lock.json',
      ]),
    )
  })

  it('copies only files that pass .dockerignore, and all of those', () => {
    const allowed = readFileSync(join(ROOT, '.dockerignore'), 'utf8')
      .split('\n')
      .filter((line) => line.startsWith('!'))
      .map((line) => line.slice(1))
    expect(allowed.toSorted()).toEqual([...new Set(copied)].toSorted())
  })

  it('ends as a named user without rights, who owns the data folder only', () => {
    const user = lines.filter((line) => line.startsWith('USER ')).at(-1)
    expect(user).toBe('USER skein')
    expect(lines.findIndex((line) => line === user)).toBeGreaterThan(
      lines.findLastIndex((line) => line.startsWith('COPY ')),
    )
    expect(lines.join('\n')).toMatch(/useradd --uid 10001 --gid skein/)
  })
})
