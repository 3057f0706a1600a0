/** Certificates of listeners that are renewed while they are used: nobody who is connected notices. */
import { execFile } from 'node:child_process'
import { copyFile, mkdtemp, readFile, rm } from 'node:fs/promises'
import { Agent, request } from 'node:https'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect } from 'node:tls'
import { promisify } from 'node:util'
import { Writable } from 'node:stream'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createHttpApp, createMetrics, listen, startTlsFiles } from '#http/index.ts'
import { createLifecycle } from '#core/program/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { Readiness } from '#core/readiness/index.ts'
import { until } from '../harness/until.ts'
import { BUILD } from './edge.ts'

const RELOAD_MS = 20
const run = promisify(execFile)
const lines: string[] = []
const logger = createLogger({
  name: 'test',
  level: 'info',
  stream: new Writable({ write: (chunk: Buffer, _encoding, done) => (lines.push(chunk.toString()), done()) }),
})
const told = (text: string) => lines.filter((line) => line.includes(text)).length

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'skein-tls-'))
  await Promise.all(['old', 'new'].map(makePair))
})
afterAll(() => rm(folder, { recursive: true }))

async function makePair(name: string): Promise<void> {
  const [key, cert] = [join(folder, `${name}.key`), join(folder, `${name}.crt`)]
  const made = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', key, '-out', cert]
  await run('openssl', ['req', '-x509', ...made, '-days', '1', '-subj', `/CN=${name}`])
}

/** The name in the certificate that a new connection is shown. */
const shownOn = (port: number) =>
  new Promise<string | undefined>((resolve, reject) => {
    const socket = connect({ port, host: '127.0.0.1', rejectUnauthorized: false }, () => {
      const { subject } = socket.getPeerCertificate()
      socket.destroy()
      resolve(String(subject.CN))
    })
    socket.once('error', reject)
  })

/** Asks on a connection that is kept; gives the name in the certificate that it began with. */
function askOn(agent: Agent, port: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const sent = request({ port, host: '127.0.0.1', path: '/health', agent }, (answer) => {
      const { subject } = (answer.socket as ReturnType<typeof connect>).getPeerCertificate()
      answer.resume().on('end', () => resolve(`${answer.statusCode} ${String(subject.CN)}`))
    })
    sent.once('error', reject).end()
  })
}

function newApp() {
  const health = { build: BUILD, metrics: createMetrics(), readiness: new Readiness(), serviceOf: () => 'test' }
  const authenticate = () => Promise.resolve()
  return createHttpApp({ logger, health, maxBodyBytes: 1024, corsOrigins: [], trustProxy: [], authenticate })
}

test('requests of different routes, behind one another and in pieces, are answered on one connection over TLS', async () => {
  const bodies: string[] = []
  const app = newApp()
  await app.register((scope, _options, done) => {
    scope.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, parsed) => parsed(null, body))
    scope.post('/kept', { config: { isPublic: true } }, (request, reply) => {
      bodies.push(String(request.body))
      return reply.code(202).send()
    })
    done()
  })
  const [cert, key] = await Promise.all(['old.crt', 'old.key'].map((name) => readFile(join(folder, name))))
  const listeners = await listen(app, {
    host: '127.0.0.1',
    ports: [{ port: 0, isOptional: false, setting: 'SKEIN_HTTP_PORT' }],
    tls: { cert: cert as Buffer, key: key as Buffer },
    logger,
  })
  const socket = connect({ port: listeners.ports[0] as number, host: '127.0.0.1', rejectUnauthorized: false })
  try {
    let text = ''
    socket.on('data', (chunk: Buffer) => (text += chunk.toString()))
    const post = (body: string) => `POST /kept HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n${body}`
    socket.write(post('one') + post('two').slice(0, -1))
    await until(() => text.includes('HTTP/1.1 202'), 'the first is answered')
    socket.write('o')
    await until(() => text.split('HTTP/1.1 202').length === 3, 'the second is answered')
    socket.write('GET /health HTTP/1.1\r\nHost: x\r\n\r\n')
    await until(() => text.includes('HTTP/1.1 200'), 'the other route answers')
    expect(bodies).toEqual(['one', 'two'])
  } finally {
    socket.destroy()
    await listeners.stop()
  }
})

test('new certificate files are in use without a restart, open connections go on, and half of a pair changes nothing', async () => {
  const [tlsCert, tlsKey] = [join(folder, 'in-use.crt'), join(folder, 'in-use.key')]
  const put = async (name: string, type: 'crt' | 'key') =>
    await copyFile(join(folder, `${name}.${type}`), type === 'crt' ? tlsCert : tlsKey)
  await put('old', 'crt')
  await put('old', 'key')
  const life = createLifecycle(logger)
  const tls = await startTlsFiles(life, { tlsCert, tlsKey, tlsCa: undefined }, logger, RELOAD_MS)
  expect(tls?.cert).toEqual(await readFile(tlsCert))
  const app = newApp()
  const listeners = await listen(app, {
    host: '127.0.0.1',
    ports: [{ port: 0, isOptional: false, setting: 'SKEIN_HTTP_PORT' }],
    tls,
    logger,
  })
  const port = listeners.ports[0] as number
  const agent = new Agent({ keepAlive: true, maxSockets: 1, rejectUnauthorized: false })
  try {
    expect(await askOn(agent, port)).toBe('200 old')
    await put('new', 'crt')
    await until(() => told('stays in use') > 0, 'the log says that the files do not fit')
    expect(await shownOn(port)).toBe('old')
    await put('new', 'key')
    await until(async () => (await shownOn(port)) === 'new', 'new connections get the new certificate')
    expect(await askOn(agent, port)).toBe('200 old')
    expect(told('reloaded the certificate files')).toBe(1)
  } finally {
    agent.destroy()
    await listeners.stop()
    await life.stop()
  }
})
