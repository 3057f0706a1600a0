// Traces over the whole product (docs/guides/traces.md): from the publish to the run that it starts and to the reader of its result
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { loadSync } from '@grpc/proto-loader'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { createInstallation, startWhole } from '../harness/whole.ts'
import type { Installation, Whole } from '../harness/whole.ts'
import { ROOT } from './deployment-files.ts'

type SpanSeen = {
  service: string
  traceId: string
  id: string
  parentId: string
  name: string
  attributes: Record<string, unknown>
  isError: boolean
}

const spans: SpanSeen[] = []
let authorization: string | undefined
let collector: Server
let installation: Installation
let whole: Whole

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736'
const CALLER = '00f067aa0ba902b7'
const TRACEPARENT = `00-${TRACE}-${CALLER}-01`

/** Decodes what an OpenTelemetry collector receives at /v1/traces. */
function startCollector(): Promise<Server> {
  const definition = loadSync(join(ROOT, 'test/fixtures/otlp/trace_service.proto'), { longs: Number, oneofs: false })
  const service = definition['otlp.TraceService'] as Record<string, { requestDeserialize: (bytes: Buffer) => unknown }>
  const decode = service['Export']?.requestDeserialize as (bytes: Buffer) => Exported
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      authorization = request.headers.authorization
      if (request.url === '/v1/traces') spans.push(...spansOf(decode(Buffer.concat(chunks))))
      response.writeHead(200, { 'content-type': 'application/x-protobuf' }).end()
    })
  })
  return new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server)))
}

type Attribute = { key: string; value: Record<string, unknown> }
type Exported = {
  resourceSpans?: {
    resource: { attributes: Attribute[] }
    scopeSpans: {
      spans: {
        traceId: Buffer
        spanId: Buffer
        parentSpanId?: Buffer
        name: string
        attributes?: Attribute[]
        status?: { code?: number }
      }[]
    }[]
  }[]
}

const valuesOf = (attributes: readonly Attribute[] = []): Record<string, unknown> =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]))

function spansOf({ resourceSpans = [] }: Exported): SpanSeen[] {
  return resourceSpans.flatMap(({ resource, scopeSpans }) =>
    scopeSpans.flatMap((scope) =>
      scope.spans.map((span) => ({
        service: String(valuesOf(resource.attributes)['service.name']),
        traceId: span.traceId.toString('hex'),
        id: span.spanId.toString('hex'),
        parentId: span.parentSpanId?.toString('hex') ?? '',
        name: span.name,
        attributes: valuesOf(span.attributes),
        isError: span.status?.code === 2,
      })),
    ),
  )
}

beforeAll(async () => {
  collector = await startCollector()
  installation = await createInstallation({
    OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${(collector.address() as AddressInfo).port}`,
    OTEL_EXPORTER_OTLP_HEADERS: 'authorization=Basic%20Y29sbGVjdG9y',
  })
  whole = await startWhole(installation)
})
afterAll(async () => {
  await whole?.[Symbol.asyncDispose]()
  installation?.[Symbol.dispose]()
  await new Promise((resolve) => collector.close(resolve))
})

async function post<T>(
  path: string,
  body: unknown,
  more: { authorization?: string; headers?: Record<string, string> } = {},
) {
  const answer = await whole.call('POST', path, { body, ...more })
  expect(answer.status, `${path}: ${answer.text}`).toBeLessThan(300)
  return answer.text === '' ? (undefined as T) : answer.json<T>()
}

const inTrace = (name: string, parentId?: string): SpanSeen | undefined =>
  spans.find(
    (span) => span.traceId === TRACE && span.name === name && (parentId === undefined || span.parentId === parentId),
  )

test('a message, the run that it starts, the guest call and the published result are one trace', async () => {
  const { access_token: token } = await post<{ access_token: string }>('/users/tokens/issue', {
    identity: 'admin',
    secret: 'the-first-admin',
  })
  const admin = { authorization: `Bearer ${token}` }
  const { id: domain } = await post<{ id: string }>('/domains', { name: 'traced', route: 'traced' }, admin)
  const [from, to] = await Promise.all(
    ['from', 'to'].map(async (name) => (await post<{ id: string }>(`/${domain}/channels`, { name }, admin)).id),
  )
  const { id: task } = await post<{ id: string }>(
    '/tasks',
    {
      name: 'add',
      domain_id: domain,
      inputs: [1],
      trigger: { channel_id: from },
      publish_result: { channel_id: to, subtopic: 'sums' },
    },
    admin,
  )
  const module = new FormData()
  module.append('file', new Blob([readFileSync(join(ROOT, 'examples/add/add.wasm'))]), 'add.wasm')
  const uploaded = await whole.call('PUT', `/tasks/${task}/upload`, { body: module, ...admin })
  expect(uploaded.status, uploaded.text).toBe(200)

  const stopping = new AbortController()
  const stream = await fetch(`${installation.base}/m/${domain}/c/${to}/live?subtopic=sums`, {
    headers: { ...admin },
    signal: stopping.signal,
  })
  expect(stream.status).toBe(200)
  await post(`/m/${domain}/c/${from}`, [{ n: 'x', v: 41 }], {
    ...admin,
    headers: { 'content-type': 'application/senml+json', traceparent: TRACEPARENT },
  })
  // Each process sends its spans by itself, once a second.
  const names = ['start run', 'run', 'call guest', 'deliver']
  await until(() => names.every((name) => inTrace(name) !== undefined), 'the spans of every process')
  stopping.abort()

  const request = inTrace('POST /m/:domain_id/c/:channel_id', CALLER)
  const publish = inTrace('publish', request?.id)
  const start = inTrace('start run', publish?.id)
  const run = inTrace('run', start?.id)
  const call = inTrace('call guest', run?.id)
  const result = inTrace('publish', start?.id)
  const deliver = inTrace('deliver', result?.id)
  expect({ request, publish, start, run, call, result, deliver }).toMatchObject({
    request: {
      service: 'skein-start',
      attributes: { 'http.request.method': 'POST', 'http.response.status_code': 202 },
    },
    publish: { attributes: { 'messaging.destination.name': from, 'network.protocol.name': 'http' } },
    start: { attributes: { 'skein.task.id': task } },
    run: {
      service: 'skein-worker',
      attributes: { 'skein.task.id': task, 'skein.run.state': 'completed' },
      isError: false,
    },
    call: { service: 'skein-worker' },
    result: { attributes: { 'messaging.destination.name': to, 'network.protocol.name': 'task' } },
    deliver: { attributes: { 'messaging.destination.name': to } },
  })
  expect(authorization).toBe('Basic Y29sbGVjdG9y')
  expect(whole.output()).not.toContain('Y29sbGVjdG9y')
})

test('probes are not traced', async () => {
  for (const path of ['/health', '/metrics']) await whole.call('GET', path, { headers: { traceparent: TRACEPARENT } })
  await until(async () => {
    await whole.call('GET', '/domains', { headers: { traceparent: `00-${'a'.repeat(32)}-${CALLER}-01` } })
    return spans.some(({ traceId }) => traceId === 'a'.repeat(32))
  }, 'a later span')
  expect(spans.filter(({ name }) => /health|metrics/.test(name))).toEqual([])
})

test('lines of the log about a request name its trace', async () => {
  const trace = 'b'.repeat(32)
  const answer = await whole.call('GET', '/domains', { headers: { traceparent: `00-${trace}-${CALLER}-01` } })
  expect(answer.status).toBe(401)
  const lines = await until(() => {
    const found = whole
      .output()
      .split('\n')
      .filter((line) => line.includes(trace))
    return found.length > 0 && found
  }, 'a line with the trace')
  expect(lines.map((line) => JSON.parse(line) as object)).toEqual([
    expect.objectContaining({ trace_id: trace, path: '/domains', kind: 'unauthenticated' }),
  ])
})
