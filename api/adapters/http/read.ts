/** Reading over HTTP (contract section 8, decision 18). */
import { Readable } from 'node:stream'
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { LatestQuery, MessagesAnswer, MessagesQuery, SeriesPage, SeriesQuery } from '#api/messages/index.ts'
import type { ExportFormat, Messages, MessagesPage } from '#api/messages/index.ts'
import { responses } from '#http/index.ts'
import type { HttpApp, RoutePlugin } from '#http/index.ts'
import type { ChannelAccessDeps } from './access.ts'
import { MESSAGE_CREDENTIALS, accessOf, authorizationQuery, checkAccess } from './access.ts'

const DomainChannel = Type.Object({
  domain_id: Type.String({ description: 'Id or route of the domain' }),
  channel_id: Type.String({ description: 'Id or route of the channel' }),
})
const Channel = Type.Pick(DomainChannel, ['channel_id'])

const PATHS = [
  { path: '/m/:domain_id/c/:channel_id', params: DomainChannel },
  { path: '/:domain_id/channels/:channel_id/messages', params: DomainChannel },
  { path: '/channels/:channel_id/messages', params: Channel },
] as const

export function readRoutes(messages: Messages, deps: ChannelAccessDeps): RoutePlugin {
  return async (app) => {
    await app.register((scope: HttpApp, _options, done) => {
      checkAccess(scope, 'subscribe', deps)
      for (const { path, params } of PATHS) {
        scope.get(
          path,
          {
            config: { action: 'subscribe', ownCredentials: MESSAGE_CREDENTIALS, mediaType: [...EXPORTED_TYPES] },
            schema: {
              tags: ['messages'],
              summary: 'Read stored messages, newest first',
              description:
                'Authorization: `Client <secret>`, Basic with client id and secret, or `Bearer` of a user. With `Accept: text/csv` or `Accept: application/x-ndjson` everything that matches is streamed in the order of time, whatever `limit` and `offset` are.',
              params,
              querystring: Type.Object({ ...MessagesQuery.properties, ...authorizationQuery }),
              response: responses({ 200: MessagesAnswer }, 'not_found', 'conflict', 'rate_limited', 'timeout'),
            },
          },
          async (request, reply) => {
            const format = request.method === 'HEAD' ? undefined : exportFormatOf(request.headers.accept)
            if (format === undefined)
              return answerOf(await messages.read(accessOf(request), request.query), request.query)
            const { contentType, chunks } = await messages.export(accessOf(request), request.query, format)
            return await reply.type(contentType).send(Readable.from(chunks, { objectMode: false }) as never)
          },
        )
        scope.get(
          `${path}/latest`,
          {
            config: { action: 'subscribe', ownCredentials: MESSAGE_CREDENTIALS },
            schema: {
              tags: ['messages'],
              summary: 'Read the newest record of every series',
              description:
                'A series is what one publisher sends under one subtopic, name and unit. Authorization as for reading. Series are listed in the order in which they began.',
              params,
              querystring: Type.Object({ ...LatestQuery.properties, ...authorizationQuery }),
              response: responses({ 200: MessagesAnswer }, 'not_found', 'conflict', 'timeout'),
            },
          },
          async (request) => answerOf(await messages.readLatest(accessOf(request), request.query), request.query),
        )
      }
      done()
    })
    await app.register((scope: HttpApp, _options, done) => {
      checkAccess(scope, 'subscribe', deps)
      for (const { path, params } of PATHS)
        scope.get(
          `${path}/series`,
          {
            config: { action: 'subscribe', ownCredentials: MESSAGE_CREDENTIALS },
            schema: {
              tags: ['messages'],
              summary: 'Read aggregates of several series, in columns',
              description:
                'What a chart shows: the results of each interval for a page of the series that have numeric values in the range, in the order in which the series began. A range has at most 1,000 intervals. Authorization as for reading.',
              params,
              querystring: Type.Object({ ...SeriesQuery.properties, ...authorizationQuery }),
              response: responses({ 200: SeriesPage }, 'not_found', 'conflict', 'timeout'),
            },
          },
          (request) => messages.readSeries(accessOf(request), request.query),
        )
      done()
    })
  }
}

function answerOf(page: MessagesPage, { only_total: isTotalOnly }: LatestQuery): Static<typeof MessagesAnswer> {
  if (isTotalOnly !== true) return page
  return {
    total: page.total,
    ...(page.total_exact === undefined ? {} : { total_exact: page.total_exact }),
    messages: [],
  }
}

/** Media types of a page of messages. */
const EXPORTED_TYPES = ['application/json', 'text/csv', 'application/x-ndjson'] as const

const EXPORTS: ReadonlyMap<string, ExportFormat | undefined> = new Map([
  ['text/csv', 'csv'],
  ['application/x-ndjson', 'json_lines'],
  ['application/json', undefined],
  ['*/*', undefined],
])

/** The supported type with the highest weight, the first of equal ones; undefined: a page of JSON. */
function exportFormatOf(accept = ''): ExportFormat | undefined {
  let best: { format: ExportFormat | undefined; weight: number } = { format: undefined, weight: 0 }
  for (const part of accept.split(',')) {
    const [type = '', ...parameters] = part.split(';').map((text) => text.trim().toLowerCase())
    if (!EXPORTS.has(type)) continue
    const given = Number.parseFloat(parameters.find((parameter) => parameter.startsWith('q='))?.slice(2) ?? '1')
    // An invalid weight, or none, is not treated as 0.
    const weight = Number.isNaN(given) ? 1 : given
    if (weight > best.weight) best = { format: EXPORTS.get(type), weight }
  }
  return best.format
}
