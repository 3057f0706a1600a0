/**
 * Certificates, revocation and TLS with what others verify with (contract section 9.3, RFC 5280, RFC 6960): the validator of Java, Python's
 * `ssl`, OpenSSL, and clients of GnuTLS and mbedTLS over MQTT. What is not installed is skipped by name, and missing in CI.
 */
import { execFile, spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { generate, parser as createParser } from 'mqtt-packet'
import type { Packet } from 'mqtt-packet'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { listen } from '#http/index.ts'
import type { Listeners } from '#http/index.ts'
import { silentLogger } from '../harness/database.ts'
import { freePort } from '../harness/ports.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { startPlant } from '../messages/support.ts'
import { aDevice, startNode } from '../mqtt/support.ts'
import type { Node } from '../mqtt/support.ts'

type Issued = { serial: string; certificate: string; key: string }

const HERE = import.meta.dirname
/** A peer that hangs is a failure of its test, not of the run. */
const PEER_DEADLINE_MS = 60_000
/** The certificate of the authority has no list and no responder: only what it issued is checked. */
const STRICT = ['-x509_strict', '-purpose', 'sslclient', '-crl_check']

const run = promisify(execFile)
const isInstalled = (program: string, ...args: string[]) => spawnSync(program, args).status === 0
const has = {
  java: isInstalled('java', '-version'),
  python: isInstalled('python3', '--version'),
  gnutls: isInstalled('gnutls-cli', '--version'),
  mbedtls: isInstalled('sh', '-c', 'printf "#include <mbedtls/ssl.h>" | cc -fsyntax-only -x c -'),
}

const publicPort = await freePort()
const plant = useWorld(() => startPlant({ environment: { SKEIN_PUBLIC_URL: `http://127.0.0.1:${publicPort}` } }))
let listeners: Listeners
let node: Node
let folder: string
let authorityFile: string

beforeAll(async () => {
  const { certificates } = plant.api.api.provisioning
  const ports = [{ port: publicPort, isOptional: false, setting: 'SKEIN_HTTP_PORT' }]
  listeners = await listen(plant.api.app, { host: '127.0.0.1', ports, logger: silentLogger })
  node = await startNode(plant.api, {
    tls: { port: 0, files: certificates.ensureTls(undefined), clientOf: certificates.clientOf },
  })
  folder = mkdtempSync(join(tmpdir(), 'skein-peers-'))
  authorityFile = file('authority.pem', await textOf('/certs/download-ca?format=pem'))
})
afterAll(async () => {
  await node.stop()
  await listeners.stop()
  rmSync(folder, { recursive: true })
})

function file(name: string, text: string): string {
  const path = join(folder, name)
  writeFileSync(path, text)
  return path
}

const textOf = async (path: string) => await (await fetch(`http://127.0.0.1:${publicPort}${path}`)).text()

async function issue(clientId: string): Promise<Issued> {
  const body = { client_id: clientId, ttl: '1h' }
  const answer = await plant.owner.call('POST', `/${plant.domainId}/certs`, body)
  expect(answer.status, answer.text).toBe(201)
  const { certificate = '', key = '', serial_number: serial = '' } = answer.json<Record<string, string>>()
  return { serial, certificate, key }
}

async function revoke({ serial }: Issued): Promise<void> {
  const answer = await plant.owner.call('DELETE', `/${plant.domainId}/certs/${serial}`)
  expect(answer.status, answer.text).toBe(200)
}

/** What the program prints, without the end of its last line. */
async function outputOf(program: string, ...args: string[]): Promise<string> {
  const { stdout } = await run(program, args, { timeout: PEER_DEADLINE_MS })
  return stdout.trimEnd()
}

test.runIf(process.env['CI'] === 'true')('the peers are installed where tests decide', () => {
  expect(has).toEqual({ java: true, python: true, gnutls: true, mbedtls: true })
})

describe('a certificate and its revocation are verified', () => {
  let good: Issued
  let revoked: Issued
  beforeAll(async () => {
    const device = await plant.newDevice()
    good = await issue(device.id)
    revoked = await issue(device.id)
    // Before the list is asked for: who asks again within a second is given the same.
    await revoke(revoked)
  })

  test.skipIf(!has.java)('by PKIX of Java (needs java), with OCSP and the list at the addresses in it', async () => {
    const files = [file('good.pem', good.certificate), file('revoked.pem', revoked.certificate)]
    const lines = (await outputOf('java', join(HERE, 'Revocation.java'), authorityFile, ...files)).split('\n')
    expect(lines).toEqual([
      'good.pem ocsp good',
      'good.pem crl good',
      expect.stringMatching(/^revoked\.pem ocsp REVOKED: .*reason: UNSPECIFIED/),
      expect.stringMatching(/^revoked\.pem crl REVOKED: .*reason: UNSPECIFIED/),
    ])
  })

  test.skipIf(!has.python)('by ssl of Python (needs python3), strictly, and so is that of the listener', async () => {
    const pairs = Object.entries({ good, revoked }).map(([name, { certificate, key }]) =>
      file(`${name}-pair.pem`, certificate + key),
    )
    const list = file('list.pem', await textOf('/certs/crl?format=pem'))
    const port = String(node.server.tlsPort)
    const output = await outputOf('python3', join(HERE, 'strict.py'), authorityFile, list, port, ...pairs)
    expect(output.split('\n')).toEqual([
      'listener accepted',
      'good-pair.pem accepted',
      'revoked-pair.pem certificate revoked',
    ])
  })

  test('by OpenSSL, strictly, with the revocation list', async () => {
    const list = file('strict-list.pem', await textOf('/certs/crl?format=pem'))
    const verify = (name: string, { certificate }: Issued) =>
      outputOf('openssl', 'verify', ...STRICT, '-CRLfile', list, '-CAfile', authorityFile, file(name, certificate))
    expect(await verify('strict-good.pem', good)).toBe(`${join(folder, 'strict-good.pem')}: OK`)
    await expect(verify('strict-revoked.pem', revoked)).rejects.toMatchObject({
      stderr: expect.stringContaining('certificate revoked') as string,
    })
  })

  test('with the OCSP request in the path of a GET, as newer versions of Java, and Windows, send it', async () => {
    const states: string[] = []
    for (const { certificate } of [good, revoked]) {
      const [leaf, request] = [file('asked.pem', certificate), join(folder, 'asked.req')]
      await run('openssl', ['ocsp', '-issuer', authorityFile, '-cert', leaf, '-no_nonce', '-reqout', request])
      const path = encodeURIComponent((await outputOf('base64', '-w0', request)).trim())
      const answer = await fetch(`http://127.0.0.1:${publicPort}/certs/ocsp/${path}`)
      expect(answer.headers.get('content-type')).toBe('application/ocsp-response')
      const response = join(folder, 'answered.der')
      writeFileSync(response, Buffer.from(await answer.arrayBuffer()))
      const asked = ['-issuer', authorityFile, '-CAfile', authorityFile, '-cert', leaf]
      states.push(await outputOf('openssl', 'ocsp', ...asked, '-respin', response))
    }
    expect(states[0]).toMatch(/asked\.pem: good\n/)
    expect(states[1]).toMatch(/asked\.pem: revoked\n/)
  })
})

/** What a TLS client that passes bytes on receives after CONNECT without a password and a message, until DISCONNECT or the end. */
async function packetsThrough(program: string, args: string[], topic: string): Promise<Packet[]> {
  const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'pipe'] })
  const deadline = setTimeout(() => child.kill('SIGKILL'), PEER_DEADLINE_MS)
  const ended = new Promise<void>((resolve) => child.once('close', () => resolve()))
  const packets: Packet[] = []
  const parser = createParser().on('packet', (packet) => packets.push(packet))
  let errors = ''
  let hasEnded = false
  void ended.then(() => (hasEnded = true))
  child.stdout.on('data', (chunk: Buffer) => parser.parse(chunk))
  child.stderr.on('data', (chunk: Buffer) => (errors += chunk.toString()))
  // A client that was refused may be gone before it has read all.
  child.stdin.on('error', () => undefined)
  child.stdin.write(
    Buffer.concat([
      generate({ cmd: 'connect', clientId: '', protocolId: 'MQTT', protocolVersion: 4, clean: true, keepalive: 0 }),
      generate({
        cmd: 'publish',
        topic,
        payload: '[{"n":"t","v":1}]',
        qos: 1,
        messageId: 1,
        dup: false,
        retain: false,
      }),
    ]),
  )
  await until(() => hasEnded || packets.some(({ cmd }) => cmd === 'puback'), `an answer through ${program}`)
  child.kill()
  await ended
  clearTimeout(deadline)
  if (packets.length === 0) throw new Error(`${program} received nothing: ${errors}`)
  return packets
}

describe('MQTT with the certificate of a client', () => {
  let mbedtls: string
  beforeAll(async () => {
    mbedtls = join(folder, 'mbedtls-client')
    const libraries = ['-lmbedtls', '-lmbedx509', '-lmbedcrypto']
    if (has.mbedtls) await run('cc', ['-o', mbedtls, join(HERE, 'mbedtls-client.c'), ...libraries])
  })

  const clients = {
    gnutls: (port: number, certificate: string, key: string) => {
      const pair = ['--x509cafile', authorityFile, '--x509certfile', certificate, '--x509keyfile', key]
      return [
        'gnutls-cli',
        '--logfile',
        join(folder, 'gnutls.log'),
        ...pair,
        '--port',
        String(port),
        'localhost',
      ] as const
    },
    mbedtls: (port: number, certificate: string, key: string) =>
      [mbedtls, 'localhost', String(port), authorityFile, certificate, key] as const,
  }

  const CASES = [
    ['GnuTLS', 'gnutls', 'gnutls-cli'],
    ['mbedTLS', 'mbedtls', 'cc and libmbedtls-dev'],
  ] as const
  for (const [library, client, needed] of CASES) {
    test.skipIf(!has[client])(
      `is accepted over TLS of ${library} (needs ${needed}), and a revoked one is not`,
      async () => {
        const device = await aDevice(plant, node.port)
        const [good, gone] = [await issue(device.id), await issue(device.id)]
        const through = async (name: string, { certificate, key }: Issued) => {
          const files = [file(`${name}.crt`, certificate), file(`${name}.key`, key)] as const
          const [program, ...args] = clients[client](node.server.tlsPort as number, ...files)
          return await packetsThrough(program, args, device.topic)
        }
        expect(await through(client, good)).toMatchObject([{ cmd: 'connack', returnCode: 0 }, { cmd: 'puback' }])
        expect(await device.stored()).toMatchObject([{ publisher: device.id, protocol: 'mqtt', value: 1 }])
        await revoke(gone)
        expect(await through(`${client}-revoked`, gone)).toMatchObject([{ cmd: 'connack', returnCode: 4 }])
      },
    )
  }
})
