/** Guests that send HTTP requests through their worker: a core module, and a Rust component with wasi:http 0.2. */
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { create } from '@bufbuild/protobuf'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { HttpGrantSchema, LogStream } from '#proto/index.ts'
import { JoinedWorker } from './joined-worker.ts'
import { moduleFromText, until } from './pool.ts'

const seen: { method: string; url: string; headers: IncomingMessage['headers']; body: string }[] = []
let respond: (response: ServerResponse) => void = (response) =>
  void response.writeHead(201, { 'x-one': 'a' }).end('the answer of a server')
const server = createServer((request, response) => {
  const parts: Buffer[] = []
  request.on('data', (part: Buffer) => parts.push(part))
  request.on('end', () => {
    const { method = '', url = '', headers } = request
    seen.push({ method, url, headers, body: Buffer.concat(parts).toString() })
    respond(response)
  })
})
let host = ''
let joined: JoinedWorker

beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  host = `127.0.0.1:${(server.address() as AddressInfo).port}`
  joined = await JoinedWorker.start({ SKEIN_WORKER_HTTP_HOSTS: host })
})
afterAll(async () => {
  await joined[Symbol.asyncDispose]()
  server.closeAllConnections()
  server.close()
})

const grant = (more: { methods?: string[]; maxRequests?: number } = {}) =>
  create(HttpGrantSchema, {
    allow: [{ origin: `http://${host}`, methods: more.methods ?? ['GET', 'POST'] }],
    maxRequests: more.maxRequests ?? 10,
    maxBytes: 1_000_000n,
    timeoutMs: 60_000n,
  })

const quoted = (text: string) => text.replaceAll('"', '\\22')

/** Sends the request with a body of 4 bytes, and returns the status, the length of the body and its byte 4; or the code. */
function sender(request: object) {
  const text = JSON.stringify(request)
  return moduleFromText(`(module
    (import "skein" "http_request" (func $send (param i32 i32 i32 i32) (result i32)))
    (import "skein" "http_head" (func $head (param i32 i32) (result i32)))
    (import "skein" "http_body" (func $body (param i32 i32 i32) (result i32)))
    (import "skein" "last_error" (func $error (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data (i32.const 100) "${quoted(text)}") (data (i32.const 2000) "body")
    (func $print (param $at i32) (param $bytes i32)
      (i32.store (i32.const 0) (local.get $at)) (i32.store (i32.const 4) (local.get $bytes))
      (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))
    (func (export "run") (result i32 i32 i32) (local $code i32)
      (local.set $code (call $send (i32.const 100) (i32.const ${Buffer.byteLength(text)}) (i32.const 2000) (i32.const 4)))
      (if (i32.lt_s (local.get $code) (i32.const 0))
        (then (call $print (i32.const 3000) (call $error (i32.const 3000) (i32.const 1000))))
        (else (call $print (i32.const 3000) (call $head (i32.const 3000) (i32.const 1000)))))
      (local.get $code)
      (call $body (i32.const 4) (i32.const 5000) (i32.const 1))
      (i32.load8_u (i32.const 5000))))`)
}

const logOf = (runId: string, stream: LogStream) =>
  joined.manager
    .heard('logChunk')
    .filter((chunk) => chunk.run?.runId === runId && chunk.stream === stream)
    .map(({ data }) => Buffer.from(data).toString())
    .join('')

describe('a core module', () => {
  test('sends a request and reads the response; the log of the run has the request', async () => {
    const request = { method: 'POST', url: `http://${host}/a?b=c`, headers: [['x-two', 'b']] }
    joined.manager.assign(await sender(request), 'core-1', { http: grant() })
    expect(await joined.manager.result('core-1')).toMatchObject({ resultsJson: '[201,22,97]' })
    expect(seen.at(-1)).toMatchObject({ method: 'POST', url: '/a?b=c', body: 'body' })
    expect(seen.at(-1)?.headers).toMatchObject({ 'x-two': 'b', 'idempotency-key': '"core-1-1"' })
    expect(logOf('core-1', LogStream.STDOUT)).toContain('["x-one","a"]')
    expect(logOf('core-1', LogStream.HTTP)).toMatch(
      /^POST http:\/\/127\.0\.0\.1:\d+ 201, \d+ bytes sent, 22 received\n$/,
    )
  })

  test.each([
    ['without a grant', { url: 'http://HOST/' }, undefined, '-2'],
    ['with a method that is not granted', { url: 'http://HOST/', method: 'DELETE' }, grant, '-2'],
    ['with a header that it cannot set', { url: 'http://HOST/', headers: [['Host', 'other']] }, grant, '-1'],
    ['with a method that is not one', { url: 'http://HOST/', method: 'x'.repeat(100) }, grant, '-1'],
    ['with headers that are none', { url: 'http://HOST/', headers: [['a']] }, grant, '-1'],
    ['with an endless time', { url: 'http://HOST/', timeout_ms: -1 }, grant, '-1'],
  ] as const)('%s gets a code, and the worker goes on', async (name, request, granted, code) => {
    const before = seen.length
    const module = await sender({ ...request, url: request.url.replace('HOST', host) })
    joined.manager.assign(module, name, granted === undefined ? {} : { http: granted() })
    expect(await joined.manager.result(name)).toMatchObject({ resultsJson: `[${code},-3,0]` })
    expect(seen).toHaveLength(before)
  })

  test('its time limit ends a request, of which the log says so', async () => {
    const usual = respond
    let isClosed = false
    respond = (response) => void response.on('close', () => (isClosed = true))
    try {
      const limits = { timeoutMs: 500n, memoryLimitBytes: 1048576n, maxOutputBytes: 10_000n, maxResultBytes: 10_000n }
      joined.manager.assign(await sender({ url: `http://${host}/slow` }), 'slow', { http: grant(), limits } as never)
      expect(await joined.manager.result('slow')).toMatchObject({ error: 'the run did not end within 500 ms' })
      await until(() => isClosed)
      expect(logOf('slow', LogStream.HTTP)).toContain('aborted')
    } finally {
      respond = usual
    }
  })
})

describe('a component of Rust with wasi:http 0.2', () => {
  const component = readFileSync(new URL('fixtures/http/request.wasm', import.meta.url))

  async function run(runId: string, args: string[], more: object) {
    joined.manager.assign(component, runId, { cliArgs: args, ...more })
    const { resultsJson, error } = await joined.manager.result(runId)
    expect(error).toBe('')
    return JSON.parse(resultsJson) as { exit_code: number; stdout: string; stderr: string }
  }

  test('sends a request and reads the response in parts', async () => {
    const { exit_code: code, stdout } = await run('rust-1', [host, '/p?q=1', 'a body'], { http: grant() })
    expect(stdout.split('\n')).toEqual([
      'host header: Err(HeaderError::Forbidden)',
      'bad header: Err(HeaderError::InvalidSyntax)',
      'status 201',
      'x-one [[97]]',
      'body the answer of a server',
      '',
    ])
    expect(code).toBe(0)
    expect(seen.at(-1)).toMatchObject({ method: 'POST', url: '/p?q=1', body: 'a body' })
    expect(seen.at(-1)?.headers).toMatchObject({ 'x-two': 'b', host })
  })

  test('without a grant gets the error code of wasi:http', async () => {
    const { stdout } = await run('rust-2', [host, '/'], {})
    expect(stdout).toContain('error ErrorCode::HttpRequestDenied')
  })
})
