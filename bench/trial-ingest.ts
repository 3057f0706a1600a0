/**
 * The smallest program with the same guarantee, for comparison: Fastify with a schema, a queue in memory, one `unnest` of
 * up to 400 messages per transaction over two connections, a narrow table with one index, an answer after the commit. No
 * authentication, no access control, no series names, no resolution, no projections.
 */
import Fastify from 'fastify'
import pg from 'pg'
import { startEmbeddedPostgres } from '#postgres/embedded/index.ts'

const MAX_MESSAGES = 400
const CONNECTIONS = 2

type Item = { bn?: string; n: string; u?: string; v: number; t: number }
type Waiting = { items: Item[]; done: (error?: Error) => void }

const dataDir = process.argv[2] as string
const server = await startEmbeddedPostgres({ dataDir, log: () => undefined })
const clients = await Promise.all(
  Array.from({ length: CONNECTIONS }, async () => {
    const client = new pg.Client(server.connection)
    await client.connect()
    return client
  }),
)
await clients[0]?.query(
  'CREATE TABLE trial (channel int, name text, unit text, time double precision, value double precision)',
)
await clients[0]?.query('CREATE INDEX trial_time ON trial (channel, time)')

const queue: Waiting[] = []
const idle = [...clients]

function writeNext(): void {
  const client = queue.length === 0 ? undefined : idle.pop()
  if (client === undefined) return
  const batch = queue.splice(0, MAX_MESSAGES)
  void write(client, batch).finally(() => {
    idle.push(client)
    writeNext()
  })
  writeNext()
}

async function write(client: pg.Client, batch: Waiting[]): Promise<void> {
  const names: string[] = []
  const units: (string | undefined)[] = []
  const times: number[] = []
  const values: number[] = []
  for (const { items } of batch) {
    const base = items[0]?.bn ?? ''
    for (const { n, u, v, t } of items) {
      names.push(base + n)
      units.push(u)
      times.push(t)
      values.push(v)
    }
  }
  try {
    await client.query({
      name: 'trial',
      text: 'INSERT INTO trial SELECT 1, * FROM unnest($1::text[], $2::text[], $3::float8[], $4::float8[])',
      values: [names, units, times, values],
    })
    for (const { done } of batch) done()
  } catch (error) {
    for (const { done } of batch) done(error as Error)
  }
}

const app = Fastify()
app.addContentTypeParser('application/senml+json', { parseAs: 'string' }, app.getDefaultJsonParser('error', 'error'))
const text = { type: 'string' }
const number = { type: 'number' }
const body = {
  type: 'array',
  items: {
    type: 'object',
    required: ['n', 'v', 't'],
    properties: { bn: text, n: text, u: text, v: number, t: number },
  },
}
app.post<{ Body: Item[] }>('/m', { schema: { body } }, async (request, reply) => {
  await new Promise<void>((resolve, reject) => {
    queue.push({ items: request.body, done: (error) => (error === undefined ? resolve() : reject(error)) })
    if (queue.length === 1) setImmediate(writeNext)
  })
  return reply.code(202).send()
})
await app.listen({ port: 0, host: '127.0.0.1' })
const address = app.server.address()
process.send?.(typeof address === 'object' ? address?.port : undefined)
process.once('disconnect', () => {
  void app
    .close()
    .then(() => Promise.all(clients.map((client) => client.end())))
    .then(() => server.stop())
    .finally(() => process.exit(0))
})
