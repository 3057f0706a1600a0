/** Ports that are taken, given twice or served with TLS, and uploads that break off (contract section 15). */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { ServiceError } from '#core/errors/index.ts'
import { createHttpApp, createMetrics, listen, portError, readTlsFiles } from '#http/index.ts'
import type { HttpApp } from '#http/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { Readiness } from '#core/readiness/index.ts'
import { Writable } from 'node:stream'
import { BUILD } from './edge.ts'

const lines: string[] = []
const logger = createLogger({
  name: 'test',
  level: 'info',
  stream: new Writable({ write: (chunk: Buffer, _encoding, done) => (lines.push(chunk.toString()), done()) }),
})

function anApp(): HttpApp {
  return createHttpApp({
    logger,
    health: { build: BUILD, metrics: createMetrics(), readiness: new Readiness(), serviceOf: () => 'test' },
    maxBodyBytes: 1024,
    corsOrigins: [],
    trustProxy: [],
    authenticate: () => Promise.resolve(),
  })
}

/** A port that another program has. */
async function takenPort() {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    port: (server.address() as AddressInfo).port,
    [Symbol.asyncDispose]: () => new Promise<void>((resolve) => server.close(() => resolve())),
  }
}

const base = { port: 0, isOptional: false, setting: 'SKEIN_HTTP_PORT' }

test('a port in use is an error with its setting, and ports that were bound before are released', async () => {
  await using other = await takenPort()
  await using free = await takenPort()
  const { port } = free
  await free[Symbol.asyncDispose]()
  const app = anApp()
  const refusal = listen(app, {
    host: '127.0.0.1',
    ports: [
      { ...base, port },
      { ...base, port: other.port, setting: 'SKEIN_OTHER_PORT' },
    ],
    logger,
  })
  await expect(refusal).rejects.toThrow(
    `port ${other.port} on 127.0.0.1 is already in use; stop the other program, or set SKEIN_OTHER_PORT to a free port`,
  )
  const again = await listen(app, { host: '127.0.0.1', ports: [{ ...base, port }], logger })
  expect(again.ports).toEqual([port])
  await again.stop()
})

test('an optional port in use is a warning, and the other ports serve', async () => {
  await using other = await takenPort()
  const listeners = await listen(anApp(), {
    host: '127.0.0.1',
    ports: [base, { port: other.port, isOptional: true, setting: 'SKEIN_SERVICE_PORTS' }],
    logger,
  })
  expect(listeners.taken).toEqual([other.port])
  expect(lines.at(-1)).toContain(`ports ${other.port} are in use by another program`)
  expect((await fetch(`http://127.0.0.1:${listeners.ports[0]}/health`)).status).toBe(200)
  await listeners.stop()
})

test('a port that two settings name is bound once, without a conflict', async () => {
  await using free = await takenPort()
  const { port } = free
  await free[Symbol.asyncDispose]()
  const listeners = await listen(anApp(), {
    host: '127.0.0.1',
    ports: [
      { ...base, port },
      { port, isOptional: true, setting: 'SKEIN_SERVICE_PORTS' },
    ],
    logger,
  })
  expect([listeners.ports, listeners.taken]).toEqual([[port], []])
  await listeners.stop()
})

test('every port serves every route', async () => {
  const listeners = await listen(anApp(), { host: '127.0.0.1', ports: [base, base], logger })
  expect(new Set(listeners.ports).size).toBe(2)
  for (const port of listeners.ports) expect((await fetch(`http://127.0.0.1:${port}/health`)).status).toBe(200)
  await listeners.stop()
})

test.each([
  ['EACCES', 'port 80 requires privileges that this user does not have; set SKEIN_HTTP_PORT to a port above 1023'],
  ['EADDRNOTAVAIL', '192.0.2.1 is not an address of this machine; set SKEIN_HOST'],
  ['EOTHER', 'cannot listen on 192.0.2.1:80 (SKEIN_HTTP_PORT): odd'],
])('%s is an error in one sentence with a remedy', (code, sentence) => {
  const error = portError(
    Object.assign(new Error('odd'), { code }),
    { port: 80, setting: 'SKEIN_HTTP_PORT' },
    '192.0.2.1',
  )
  expect(error).toBeInstanceOf(ServiceError)
  expect(error.message).toBe(sentence)
})

test('half a TLS configuration, a missing file and a file without a certificate are refused by name', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'skein-tls-'))
  const file = join(folder, 'cert.pem')
  await writeFile(file, 'no certificate')
  const read = (tlsCert?: string, tlsKey?: string) => readTlsFiles({ tlsCert, tlsKey, tlsCa: undefined })
  expect(await read()).toBeUndefined()
  await expect(read(file)).rejects.toThrow('SKEIN_TLS_CERT and SKEIN_TLS_KEY must be set together')
  await expect(read(file, join(folder, 'none'))).rejects.toThrow('failed to read the file of SKEIN_TLS_KEY')
  await expect(read(file, file)).rejects.toThrow('SKEIN_TLS_CERT and SKEIN_TLS_KEY do not match')
  await rm(folder, { recursive: true })
})
