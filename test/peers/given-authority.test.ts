/**
 * An authority that the installation was given (contract section 9.3): an intermediate one with an RSA key, whose root is all that others
 * trust. What is not installed is skipped by name; certificates.test.ts requires it in CI.
 */
import { execFile, spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect } from 'node:tls'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { listen } from '#http/index.ts'
import type { Listeners } from '#http/index.ts'
import { silentLogger } from '../harness/database.ts'
import { freePorts } from '../harness/ports.ts'
import { useWorld } from '../harness/world.ts'
import { startPlant } from '../messages/support.ts'

const HERE = import.meta.dirname
const PEER_DEADLINE_MS = 60_000
const run = promisify(execFile)
const hasJava = spawnSync('java', ['-version']).error === undefined

const folder = mkdtempSync(join(tmpdir(), 'skein-given-'))
const at = (name: string) => join(folder, name)
const [publicPort = 0, tlsPort = 0] = await freePorts(2)
const AT = `http://127.0.0.1:${publicPort}`

/** A root, and what it issued to the installation. */
async function makeAuthority(): Promise<void> {
  const usage = ['-addext', 'keyUsage=critical,keyCertSign,cRLSign,digitalSignature']
  const key = (name: string) => [
    '-newkey',
    'rsa:2048',
    '-nodes',
    '-keyout',
    at(`${name}.key`),
    '-subj',
    `/O=Plant/CN=${name}`,
  ]
  const constraints = (depth: number) => ['-addext', `basicConstraints=critical,CA:true,pathlen:${depth}`]
  await run('openssl', [
    'req',
    '-x509',
    ...key('root'),
    ...constraints(1),
    ...usage,
    '-days',
    '3',
    '-out',
    at('root.crt'),
  ])
  await run('openssl', ['req', '-new', ...key('site'), ...constraints(0), ...usage, '-out', at('site.csr')])
  const signed = [
    '-CA',
    at('root.crt'),
    '-CAkey',
    at('root.key'),
    '-CAcreateserial',
    '-copy_extensions',
    'copy',
    '-days',
    '2',
  ]
  await run('openssl', ['x509', '-req', '-in', at('site.csr'), ...signed, '-out', at('site.crt')])
  writeFileSync(at('chain.crt'), readFileSync(at('site.crt'), 'utf8') + readFileSync(at('root.crt'), 'utf8'))
}

const plant = useWorld(async () => {
  await makeAuthority()
  const authority = { SKEIN_CA_CERT: at('chain.crt'), SKEIN_CA_KEY: at('site.key') }
  return await startPlant({ environment: { ...authority, SKEIN_PUBLIC_URL: AT } })
})
let plain: Listeners
let secure: Listeners
beforeAll(async () => {
  const { certificates } = plant.api.api.provisioning
  const begin = (port: number) => ({
    host: '127.0.0.1',
    ports: [{ port, isOptional: false, setting: 'SKEIN_HTTP_PORT' }],
    logger: silentLogger,
  })
  plain = await listen(plant.api.app, begin(publicPort))
  secure = await listen(plant.api.app, { ...begin(tlsPort), tls: certificates.ensureTls(undefined) })
})
afterAll(async () => {
  await secure.stop()
  await plain.stop()
  rmSync(folder, { recursive: true })
})

async function issue(name: string): Promise<{ serial: string; file: string }> {
  const body = { client_id: (await plant.newDevice()).id, ttl: '1h' }
  const answer = await plant.owner.call('POST', `/${plant.domainId}/certs`, body)
  expect(answer.status, answer.text).toBe(201)
  const { certificate = '', serial_number: serial = '' } = answer.json<Record<string, string>>()
  writeFileSync(at(`${name}.crt`), certificate)
  return { serial, file: at(`${name}.crt`) }
}

/** Before the list is asked for: who asks again within a second is given the same. */
async function goodAndRevoked(name: string) {
  const [good, revoked] = [await issue(`${name}-good`), await issue(`${name}-revoked`)]
  expect((await plant.owner.call('DELETE', `/${plant.domainId}/certs/${revoked.serial}`)).status).toBe(200)
  return [good.file, revoked.file] as const
}

test.skipIf(!hasJava)(
  'signs certificates, OCSP and the list so that PKIX of Java verifies them (needs java)',
  async () => {
    const files = await goodAndRevoked('java')
    const { stdout } = await run('java', [join(HERE, 'Revocation.java'), at('chain.crt'), ...files], {
      timeout: PEER_DEADLINE_MS,
    })
    expect(stdout.trimEnd().split('\n')).toEqual([
      'java-good.crt ocsp good',
      'java-good.crt crl good',
      expect.stringMatching(/^java-revoked\.crt ocsp REVOKED: /),
      expect.stringMatching(/^java-revoked\.crt crl REVOKED: /),
    ])
  },
)

test('issues certificates that OpenSSL verifies strictly up to the root, and OCSP answers for them', async () => {
  const [good, revoked] = await goodAndRevoked('openssl')
  const chain = ['-CAfile', at('root.crt'), '-untrusted', at('site.crt')]
  const { stdout } = await run('openssl', ['verify', '-x509_strict', '-purpose', 'sslclient', ...chain, good])
  expect(stdout).toBe(`${good}: OK\n`)
  const ask = async (file: string) => {
    const trust = ['-CAfile', at('chain.crt'), '-issuer', at('site.crt'), '-cert', file]
    const answer = await run('openssl', ['ocsp', ...trust, '-url', `${AT}/certs/ocsp`])
    return answer.stdout + answer.stderr
  }
  expect(await ask(good)).toMatch(/openssl-good\.crt: good\n[^]*Response verify OK/)
  expect(await ask(revoked)).toMatch(/openssl-revoked\.crt: revoked\n[^]*Response verify OK/)
})

test('is shown by the listeners, so that who trusts the root alone connects', async () => {
  const socket = connect({
    host: '127.0.0.1',
    port: tlsPort,
    servername: 'localhost',
    ca: readFileSync(at('root.crt')),
  })
  const error = await new Promise((resolve) => {
    socket.once('secureConnect', () => resolve(undefined)).once('error', resolve)
  })
  socket.destroy()
  expect(error).toBeUndefined()
})
