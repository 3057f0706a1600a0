/**
 * Cursors at the edge: a route whose query has `cursor` gets the place instead of the text, and its pages the cursor of the next page
 * instead of their end. Both are bound to the path and the filters of the request.
 */
import type { FastifyInstance, FastifyRequest, RouteOptions } from 'fastify'
import { NextCursor, listingOf, parseCursor } from '../cursor.ts'
import type { PageEnd, Place } from '../cursor.ts'
import { refusedField } from '../errors/index.ts'

type Query = { offset?: number; cursor?: string | Place }
type Page = { offset?: number; next?: PageEnd | NextCursor }

export function registerCursors(app: FastifyInstance): void {
  app.addHook('onRoute', (route: RouteOptions) => {
    const query = route.schema?.querystring as { properties?: object } | undefined
    if (query?.properties === undefined || !('cursor' in query.properties)) return
    route.preHandler = [readCursor, ...[route.preHandler ?? []].flat()]
    route.preSerialization = [writeNext, ...[route.preSerialization ?? []].flat()]
  })
}

function readCursor(request: FastifyRequest, _reply: unknown, done: (error?: Error) => void): void {
  const query = request.query as Query
  try {
    // The hooks of a route also run for its HEAD, which Fastify derives from it.
    if (typeof query.cursor === 'string') {
      if ((query.offset ?? 0) > 0) throw refusedField('cursor', 'must not be combined with offset')
      query.cursor = parseCursor(listing(request), query.cursor)
    }
    done()
  } catch (error) {
    done(error as Error)
  }
}

function writeNext(
  request: FastifyRequest,
  _reply: unknown,
  payload: unknown,
  done: (error: null, payload: unknown) => void,
): void {
  const { next, ...page } = (payload ?? {}) as Page
  if (next === undefined || next instanceof NextCursor) return done(null, payload)
  // The number of rows before a place is unknown.
  if ((request.query as Query).cursor !== undefined) delete page.offset
  done(null, { ...page, next: new NextCursor(listing(request), next) })
}

function listing({ routeOptions, params, query }: FastifyRequest): Buffer {
  return listingOf(routeOptions.url ?? '', params as object, query as object)
}
