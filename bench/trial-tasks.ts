/**
 * The smallest program with the same guarantee, for comparison: `node:http`, one connection that writes what arrived
 * during the commit of the last batch, a narrow table, one gRPC stream to one worker process with a warm thread, an
 * answer after the second commit. No access control, no tasks, no validation, no leases, no fences, no spool, no events,
 * no runner process of its own.
 */
import { fork } from 'node:child_process'
import { createServer } from 'node:http'
import type { ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { Server, ServerCredentials } from '@grpc/grpc-js'
import type { ServerDuplexStream } from '@grpc/grpc-js'
import pg from 'pg'
import { startEmbeddedPostgres } from '#postgres/embedded/index.ts'
import { STREAM } from './trial-stream.ts'
import type { TrialEnd, TrialOrder } from './trial-stream.ts'

const MAX_BATCH = 1_000

/** The runs of one request. */
type Call = { left: number; results: unknown[]; response: ServerResponse }
type Begin = { call: Call; index: number; inputs: [number, number] }

const dataDir = process.argv[2] as string
const server = await startEmbeddedPostgres({ dataDir, log: () => undefined })
const client = new pg.Client(server.connection)
await client.connect()
await client.query(`CREATE TABLE trial (key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, inputs json NOT NULL,
  state int NOT NULL, results json)`)

const begins: Begin[] = []
const ends: TrialEnd[] = []
const running = new Map<number, Begin>()
let stream: ServerDuplexStream<TrialEnd[], TrialOrder[]> | undefined
let isWriting = false

const INSERT = 'INSERT INTO trial (inputs, state) SELECT inputs, 1 FROM unnest($1::json[]) AS n (inputs) RETURNING key'
const UPDATE = `UPDATE trial t SET state = 3, results = n.results
  FROM unnest($1::bigint[], $2::json[]) AS n (key, results) WHERE t.key = n.key AND t.state = 1`

async function write(): Promise<void> {
  if (isWriting) return
  isWriting = true
  await new Promise(setImmediate)
  while (begins.length + ends.length > 0) {
    const begun = begins.splice(0, MAX_BATCH)
    const ended = ends.splice(0, MAX_BATCH).toSorted((left, right) => left.key - right.key)
    await client.query('BEGIN')
    if (ended.length > 0) {
      const values = [ended.map(({ key }) => key), ended.map(({ results }) => JSON.stringify(results))]
      await client.query({ name: 'end', text: UPDATE, values })
    }
    const inserted = { keys: [] as number[] }
    if (begun.length > 0) {
      const values = [begun.map(({ inputs }) => JSON.stringify(inputs))]
      const { rows } = await client.query<{ key: string }>({ name: 'begin', text: INSERT, values })
      inserted.keys = rows.map(({ key }) => Number(key))
    }
    await client.query('COMMIT')
    for (const { key, results } of ended) tell(key, results)
    for (const [at, key] of inserted.keys.entries()) running.set(key, begun[at] as Begin)
    if (begun.length > 0) stream?.write(begun.map(({ inputs }, at) => ({ key: inserted.keys[at] as number, inputs })))
  }
  isWriting = false
}

function tell(key: number, results: unknown[]): void {
  const begin = running.get(key)
  if (begin === undefined) return
  running.delete(key)
  const { call, index } = begin
  call.results[index] = results
  call.left -= 1
  if (call.left > 0) return
  const body = JSON.stringify(call.results)
  call.response
    .writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) })
    .end(body)
}

const grpc = new Server()
grpc.addService(
  { session: STREAM },
  {
    session: (call: ServerDuplexStream<TrialEnd[], TrialOrder[]>) => {
      stream = call
      call.on('data', (received: TrialEnd[]) => {
        ends.push(...received)
        void write()
      })
      process.send?.((http.address() as AddressInfo).port)
    },
  },
)
const http = createServer((request, response) => {
  const chunks: Buffer[] = []
  request.on('data', (chunk: Buffer) => chunks.push(chunk))
  request.on('end', () => {
    const { inputs } = JSON.parse(Buffer.concat(chunks).toString()) as { inputs: [number, number][] }
    const call: Call = { left: inputs.length, results: [], response }
    for (const [index, own] of inputs.entries()) begins.push({ call, index, inputs: own })
    void write()
  })
})
await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
const port = await new Promise<number>((resolve, reject) => {
  grpc.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, bound) =>
    error === null ? resolve(bound) : reject(error),
  )
})
const worker = fork(join(import.meta.dirname, 'trial-worker.ts'), [String(port)])

process.on('disconnect', () => {
  worker.kill()
  grpc.forceShutdown()
  http.closeAllConnections()
  http.close()
  void client.end().then(() => server.stop())
})
