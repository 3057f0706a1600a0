import { webcrypto } from 'node:crypto'
import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { create } from '@bufbuild/protobuf'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { IssuedCertificateSchema } from '#proto/index.ts'
import { ClientCertificate } from '#worker/session/client-certificate.ts'

const DAY_MS = 86_400_000
const VALID_DAYS = 90
/** A certificate counts whole seconds. */
const FROM_MS = Math.floor(Date.now() / 1000) * 1000

let folder: string

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'skein-certificate-'))
})

afterAll(() => rm(folder, { recursive: true, force: true }))

/** Signs the request, as the manager does. */
async function issue(request: Uint8Array) {
  await import('reflect-metadata')
  const { Pkcs10CertificateRequest, X509CertificateGenerator, cryptoProvider } = await import('@peculiar/x509')
  cryptoProvider.set(webcrypto as never)
  const keys = await webcrypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-256' }, true, ['sign', 'verify'])
  const certificate = await X509CertificateGenerator.create({
    serialNumber: '01',
    subject: 'CN=worker',
    issuer: 'CN=workers',
    notBefore: new Date(FROM_MS),
    notAfter: new Date(FROM_MS + VALID_DAYS * DAY_MS),
    publicKey: new Pkcs10CertificateRequest(Uint8Array.from(request)).publicKey,
    signingKey: keys.privateKey as never,
    signingAlgorithm: { name: 'ECDSA', hash: 'SHA-256' },
  })
  return create(IssuedCertificateSchema, { certificatePem: certificate.toString('pem') })
}

test('a certificate is renewed after two thirds of its lifetime, also after a restart', async () => {
  const path = join(folder, 'waits.pem')
  const first = await ClientCertificate.open(path)
  expect(first.isDue(FROM_MS)).toBe(true)
  expect(first.hasEnded(FROM_MS)).toBe(false)
  await first.accept(await issue(await first.request()))
  const restarted = await ClientCertificate.open(path)
  for (const certificate of [first, restarted]) {
    expect(certificate.isDue(FROM_MS)).toBe(false)
    expect(certificate.isDue(FROM_MS + 60 * DAY_MS - 1)).toBe(false)
    expect(certificate.isDue(FROM_MS + 60 * DAY_MS)).toBe(true)
    expect(certificate.hasEnded(FROM_MS + VALID_DAYS * DAY_MS - 1)).toBe(false)
    expect(certificate.hasEnded(FROM_MS + VALID_DAYS * DAY_MS)).toBe(true)
    expect(certificate.endsAt?.getTime()).toBe(FROM_MS + VALID_DAYS * DAY_MS)
  }
  expect(restarted.shown).toEqual(first.shown)
  expect((await stat(path)).mode & 0o777).toBe(0o600)
})

test('the old certificate is shown until the renewed one is on disk, and a renewal has a key of its own', async () => {
  const certificate = await ClientCertificate.open(join(folder, 'renewed.pem'))
  await certificate.accept(await issue(await certificate.request()))
  const before = certificate.shown
  const request = await certificate.request()
  expect(certificate.shown).toBe(before)
  await certificate.accept(await issue(request))
  expect(certificate.shown?.key).not.toBe(before?.key)
})

test('a damaged file is treated as absent', async () => {
  const path = join(folder, 'damaged.pem')
  await writeFile(path, '-----BEGIN PRIVATE KEY-----\nx\n-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n')
  const certificate = await ClientCertificate.open(path)
  expect(certificate.shown).toBeUndefined()
  expect(certificate.isDue(Date.now())).toBe(true)
})
