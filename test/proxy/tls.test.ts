/** Registries over TLS: a certificate that nobody vouches for is refused, and never answered by going on in plain text. */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { WASM, startRegistry } from './misbehaving-registry.ts'
import { startProxyProgram } from './proxy-program.ts'
import { runProxy } from './running-proxy.ts'

function selfSigned(more: readonly string[] = []): { key: Buffer; cert: Buffer } {
  const folder = mkdtempSync(join(tmpdir(), 'skein-tls-'))
  try {
    const [key, cert] = [join(folder, 'key.pem'), join(folder, 'cert.pem')]
    const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1']
    execFileSync(
      'openssl',
      [
        'req',
        '-x509',
        '-nodes',
        '-days',
        '2',
        '-subj',
        '/CN=localhost',
        ...more,
        ...curve,
        '-keyout',
        key,
        '-out',
        cert,
      ],
      { stdio: 'ignore' },
    )
    return { key: readFileSync(key), cert: readFileSync(cert) }
  } finally {
    rmSync(folder, { recursive: true })
  }
}

test('a listed registry with an untrusted certificate is refused before any request reaches it', async () => {
  const seen: string[] = []
  const server = createServer(selfSigned(), (request, response) => {
    seen.push(request.url ?? '')
    response.end()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  try {
    const host = `127.0.0.1:${(server.address() as AddressInfo).port}`
    for (const environment of [{ SKEIN_PROXY_HTTP_HOSTS: host }, { PROXY_REGISTRY_URL: `https://${host}` }]) {
      await using proxy = await runProxy({ environment })
      await expect(proxy.resolve(`${host}/m`)).rejects.toMatchObject({
        kind: 'unavailable',
        message: expect.stringContaining('DEPTH_ZERO_SELF_SIGNED_CERT'),
      })
    }
    expect(seen).toEqual([])
  } finally {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  }
})

test('a registry of a private authority is served when NODE_EXTRA_CA_CERTS names it', async () => {
  const { key, cert } = selfSigned(['-addext', 'subjectAltName=IP:127.0.0.1'])
  await using registry = await startRegistry()
  const { moduleDigest } = registry.module('m', 'latest', WASM)
  // The registry's own answers, over TLS.
  const server = createServer({ key, cert }, (request, response) => {
    const from = `http://${registry.host}${request.url ?? ''}`
    void fetch(from, { headers: { accept: request.headers.accept ?? '*/*' } }).then(async (answer) => {
      const type = answer.headers.get('content-type') ?? 'application/octet-stream'
      response.writeHead(answer.status, { 'content-type': type }).end(Buffer.from(await answer.arrayBuffer()))
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const folder = mkdtempSync(join(tmpdir(), 'skein-tls-'))
  try {
    const host = `127.0.0.1:${(server.address() as AddressInfo).port}`
    writeFileSync(join(folder, 'ca.pem'), cert)
    const extra = { NODE_EXTRA_CA_CERTS: join(folder, 'ca.pem') }
    await using proxy = await startProxyProgram(folder, `https://${host}`, extra)
    expect(await proxy.bring('m')).toBe(moduleDigest)
    expect(await proxy.end('SIGTERM')).toBe(0)
  } finally {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
    rmSync(folder, { recursive: true, force: true })
  }
})
