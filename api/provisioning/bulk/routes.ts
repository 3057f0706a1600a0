/** Routes that import clients, channels and connections from CSV or JSON. */
import { Type } from 'typebox'
import { MAX_BULK_BODY_BYTES, MAX_BULK_ITEMS, MAX_PAIRS, itemsOf, pairsOf } from '#api/devices/index.ts'
import { Id } from '#api/identity/index.ts'
import { responses } from '#http/index.ts'
import type { BulkTurns, HttpApp, RoutePlugin } from '#http/index.ts'
import { ImportedChannels, ImportedClients, ImportedConnections } from './schema.ts'
import type { BulkService, FileBody } from './service.ts'

const tags = ['provision']
const CSV = 'text/csv'
const LINE_FEED = 0x0a
const KINDS = ['conflict', 'unprocessable', 'rate_limited'] as const
const params = Type.Object({ domain_id: Id })
const body = Type.Unknown({ description: `${CSV} or application/json` })
const HEADER =
  'UTF-8, UTF-16 with a byte order mark, or the charset of the content type. Separated by commas; by semicolons or tabs if a line `sep=;` or a header says so. A first row that contains the name of a column is a header. Unknown columns are rejected, and so is a header without a known column. `tags` are separated by `;` or `,`; `metadata` is a JSON object.'
const REPORT =
  'The file is imported completely or not at all. An error contains the line and the reason of every problem in `details`.'

/** A parsed CSV body, to distinguish it from a JSON string. */
class CsvBody {
  readonly csv: Buffer
  readonly charset: string | undefined
  constructor(csv: Buffer, contentType: string | undefined) {
    this.csv = csv
    this.charset = /;\s*charset\s*=\s*"?([^";\s]+)/i.exec(contentType ?? '')?.[1]
  }
}

const fileOf = (parsed: unknown): FileBody => (parsed instanceof CsvBody ? parsed : { json: parsed })

export function bulkRoutes(bulk: BulkService, turns: BulkTurns): RoutePlugin {
  return async (app) => {
    await app.register((scope, _options, done) => {
      scope.addContentTypeParser(CSV, { parseAs: 'buffer' }, (request, bytes, parsed) =>
        parsed(null, new CsvBody(bytes as Buffer, request.headers['content-type'])),
      )
      importRoutes(scope as unknown as HttpApp, bulk, turns)
      done()
    })
  }
}

/** The number of rows of a file: lines of CSV, or what a JSON file stands for. */
const rowsOf = (ofJson: (json: unknown) => number) => (parsed: unknown) =>
  parsed instanceof CsvBody ? linesOf(parsed.csv) : ofJson(parsed)

/** UTF-16 has the byte of a line feed in each line, too. */
function linesOf(csv: Buffer): number {
  let lines = 1
  for (let at = csv.indexOf(LINE_FEED); at !== -1; at = csv.indexOf(LINE_FEED, at + 1)) lines += 1
  return lines
}

function importRoutes(scope: HttpApp, bulk: BulkService, turns: BulkTurns): void {
  const ofItems = { turns, rowsOf: rowsOf(itemsOf) }
  const ofPairs = { turns, rowsOf: rowsOf(pairsOf) }
  const shared = { tags, consumes: [CSV, 'application/json'], params, body }
  scope.post(
    '/:domain_id/clients/import',
    {
      config: { action: 'client_create', maxItems: MAX_BULK_ITEMS, dryRun: true, bulk: ofItems },
      bodyLimit: MAX_BULK_BODY_BYTES,
      schema: {
        ...shared,
        summary: 'Import clients from a file',
        description: `CSV: the columns \`id\`, \`name\`, \`secret\`, \`tags\`, \`metadata\` and \`status\`; without a header the first column is the name and the others are ignored. ${HEADER} JSON: a list of clients. ${REPORT}`,
        response: responses({ 201: ImportedClients }, ...KINDS),
      },
    },
    async (request, reply) => {
      const { total, made } = await bulk.importClients(
        request.principal,
        request.params.domain_id,
        fileOf(request.body),
      )
      void reply.code(201)
      return {
        total,
        clients: made.map(({ id, name, secret }) => ({ id, name, credentials: { secret } })),
      }
    },
  )
  scope.post(
    '/:domain_id/channels/import',
    {
      config: { action: 'channel_create', maxItems: MAX_BULK_ITEMS, dryRun: true, bulk: ofItems },
      bodyLimit: MAX_BULK_BODY_BYTES,
      schema: {
        ...shared,
        summary: 'Import channels from a file',
        description: `CSV: the columns \`id\`, \`name\`, \`route\`, \`description\`, \`tags\`, \`metadata\` and \`status\`; without a header the first column is the name and the others are ignored. ${HEADER} JSON: a list of channels. ${REPORT}`,
        response: responses({ 201: ImportedChannels }, ...KINDS),
      },
    },
    async (request, reply) => {
      const { total, made } = await bulk.importChannels(
        request.principal,
        request.params.domain_id,
        fileOf(request.body),
      )
      void reply.code(201)
      return { total, channels: made }
    },
  )
  scope.post(
    '/:domain_id/connections/import',
    {
      config: { action: 'channel_connect_to_client', maxItems: MAX_PAIRS, dryRun: true, bulk: ofPairs },
      bodyLimit: MAX_BULK_BODY_BYTES,
      schema: {
        ...shared,
        summary: 'Import connections from a file',
        description: `CSV: each line contains a client id and a channel id; a header (\`client_id\`, \`channel_id\`) is optional. JSON: one object or a list of them, with \`client_ids\` and \`channel_ids\`, \`subjects\` and \`objects\`, or \`thing_id\` and \`channel_id\`; every client is connected with every channel. ${REPORT}`,
        response: responses({ 201: ImportedConnections }, ...KINDS),
      },
    },
    async (request, reply) => {
      const { total } = await bulk.importConnections(request.principal, request.params.domain_id, fileOf(request.body))
      void reply.code(201)
      return { total }
    },
  )
}
