/** Certificates in place of secrets over HTTPS and secure WebSockets; TLS of our own listeners (contract 9.3). */
import { execFile } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { Agent, request } from 'node:https'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TLSSocket } from 'node:tls'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import WebSocket from 'ws'
import { listen } from '#http/index.ts'
import type { Listeners } from '#http/index.ts'
import { newTenant } from '../api/support.ts'
import type { Client } from '../api/support.ts'
import { startTestApi } from '../harness/api.ts'
import { silentLogger } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'

type Pair = { cert: string; key: string; serial: string }

const run = promisify(execFile)
const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))
let listeners: Listeners
let client: Client
let channel: string
let ca: string
let folder: string

beforeAll(async () => {
  const { certificates } = api.api.provisioning
  listeners = await listen(api.app, {
    host: '127.0.0.1',
    ports: [{ port: 0, isOptional: false, setting: 'SKEIN_HTTP_PORT' }],
    tls: certificates.ensureTls(undefined),
    logger: silentLogger,
  })
  ca = certificates.authority.certificate
  client = await tenant.newClient()
  channel = (await tenant.newChannel()).id
  await tenant.connect(client.id, channel)
  folder = mkdtempSync(join(tmpdir(), 'skein-tls-'))
})
afterAll(async () => {
  await listeners.stop()
  rmSync(folder, { recursive: true })
})

async function issue(clientId = client.id, fields = {}): Promise<Pair> {
  const answer = await tenant.call('POST', `/${tenant.domainId}/certs`, { client_id: clientId, ttl: '1h', ...fields })
  const { certificate, key, serial_number: serial } = answer.json<Record<string, string>>()
  return { cert: certificate as string, key: key as string, serial: serial as string }
}

const revoke = (serial: string) => tenant.call('DELETE', `/${tenant.domainId}/certs/${serial}`)
const pathOf = () => `/m/${tenant.domainId}/c/${channel}`

/** Publishes one measurement; the status says whether it was let through. */
function publish(pair: Partial<Pair>, headers: Record<string, string> = {}): Promise<number> {
  return new Promise((resolve, reject) => {
    const sent = request(
      {
        host: 'localhost',
        port: listeners.ports[0],
        path: pathOf(),
        method: 'POST',
        ca,
        ...(pair.cert === undefined ? {} : { cert: pair.cert, key: pair.key }),
        headers: { 'content-type': 'application/senml+json', ...headers },
        agent: false,
      },
      (answer) => {
        answer.resume()
        answer.on('end', () => resolve(answer.statusCode ?? 0))
      },
    )
    sent.on('error', reject)
    sent.end(JSON.stringify([{ n: 'voltage', v: 1 }]))
  })
}

describe('a certificate in place of the secret', () => {
  it('allows its client to publish and read; requests without a certificate are rejected', async () => {
    const pair = await issue()
    expect(await publish(pair)).toBe(202)
    expect(await publish({})).toBe(401)
    const read = await tenant.call('GET', `${pathOf()}`)
    expect(read.json<{ messages: { publisher: string }[] }>().messages[0]?.publisher).toBe(client.id)
  })

  it('does not override a wrong Authorization header', async () => {
    expect(await publish(await issue(), { authorization: 'Client wrong' })).toBe(401)
  })

  it('is rejected within a second of its revocation, while another certificate of the client stays valid', async () => {
    const [gone, kept] = [await issue(), await issue()]
    expect(await publish(gone)).toBe(202)
    await revoke(gone.serial)
    await until(async () => (await publish(gone)) === 401, 'the revoked certificate is refused', 1000)
    expect(await publish(kept)).toBe(202)
  })

  it('is rejected while its client is disabled and after the client is deleted', async () => {
    const other = await tenant.newClient()
    await tenant.connect(other.id, channel)
    const pair = await issue(other.id)
    expect(await publish(pair)).toBe(202)
    await tenant.call('POST', `/${tenant.domainId}/clients/${other.id}/disable`)
    await until(async () => (await publish(pair)) === 401, 'a disabled client is refused', 1000)
    await tenant.call('POST', `/${tenant.domainId}/clients/${other.id}/enable`)
    await until(async () => (await publish(pair)) === 202, 'an enabled client is let in', 1500)
    await tenant.call('DELETE', `/${tenant.domainId}/clients/${other.id}`)
    await until(async () => (await publish(pair)) === 401, 'a deleted client is refused', 1000)
  })

  it('of another authority is ignored, regardless of its name', async () => {
    await run('openssl', [
      'req',
      '-x509',
      '-newkey',
      'ec',
      '-pkeyopt',
      'ec_paramgen_curve:P-256',
      '-nodes',
      '-days',
      '1',
      '-subj',
      `/CN=${client.id}`,
      '-keyout',
      join(folder, 'own.key'),
      '-out',
      join(folder, 'own.crt'),
    ])
    const own = {
      cert: readFileSync(join(folder, 'own.crt'), 'utf8'),
      key: readFileSync(join(folder, 'own.key'), 'utf8'),
    }
    expect(await publish(own)).toBe(401)
  })

  it('opens a WebSocket, which ends within a second of the revocation', async () => {
    const pair = await issue()
    const socket = new WebSocket(`wss://localhost:${listeners.ports[0]}/ws${pathOf()}`, {
      ca,
      cert: pair.cert,
      key: pair.key,
    })
    await new Promise((resolve, reject) => {
      socket.once('open', resolve)
      socket.once('error', reject)
    })
    let isOpen = true
    socket.once('close', () => {
      isOpen = false
    })
    await revoke(pair.serial)
    await until(() => !isOpen, 'the socket of the revoked certificate is closed', 1000)
  })
})

describe('curl', () => {
  it('trusts the listener with the downloaded authority, and authenticates with its certificate', async () => {
    const pair = await issue()
    for (const [name, text] of Object.entries({ ca, cert: pair.cert, key: pair.key }))
      writeFileSync(join(folder, name), text)
    const { stdout } = await run('curl', [
      '-s',
      '-o',
      '/dev/null',
      '-w',
      '%{http_code}',
      '--cacert',
      join(folder, 'ca'),
      '--cert',
      join(folder, 'cert'),
      '--key',
      join(folder, 'key'),
      '-H',
      'Content-Type: application/senml+json',
      '-d',
      '[{"n":"voltage","v":1}]',
      `https://localhost:${listeners.ports[0]}${pathOf()}`,
    ])
    expect(stdout).toBe('202')
  })
})

describe('the certificate of the listeners', () => {
  /** Asks on a connection of this agent; gives the serial number of the certificate that it began with. */
  const serialOn = (agent: Agent) =>
    new Promise<string>((resolve, reject) => {
      // What is renewed by a clock that is ahead is not valid yet.
      const options = { port: listeners.ports[0], path: '/health', agent, rejectUnauthorized: false }
      const sent = request(options, (answer) => {
        const { serialNumber } = (answer.socket as TLSSocket).getPeerCertificate()
        answer.resume().on('end', () => resolve(serialNumber))
      })
      sent.once('error', reject).end()
    })

  it('is renewed before it expires, for new connections; open connections continue, and no certificate is renewed too early', async () => {
    const { renewOwnTls } = api.api.provisioning.certificates
    const inDays = (days: number) => new Date(Date.now() + days * 86_400_000)
    const kept = new Agent({ keepAlive: true, maxSockets: 1 })
    const first = await serialOn(kept)
    await renewOwnTls(inDays(300))
    expect(await serialOn(new Agent())).toBe(first)
    await renewOwnTls(inDays(310))
    const second = await serialOn(new Agent())
    expect(second).not.toBe(first)
    expect(await serialOn(kept)).toBe(first)
    await renewOwnTls(inDays(311))
    expect(await serialOn(new Agent())).toBe(second)
    kept.destroy()
  })
})
