/**
 * Cursors at the edge: a route whose query has `cursor` gets the place instead of the text, and its pages the cursor of the next page
 * instead of their end. Both are bound to the path and the filters of the request.
 */
import type { FastifyInstance, FastifyRequest, RouteOptions } from 'fastify'
import { NextCursor, formatCursor, listingOf, parseCursor } from '#core/cursor.ts'
import type { CursorKeyring, PageEnd, Place } from '#core/cursor.ts'
import { refusedField } from '#core/errors/index.ts'

type Query = { offset?: number; cursor?: string | Place }
type Page = { offset?: number; next?: PageEnd | NextCursor }

/** Throws for a route with cursors in an app without a keyring. */
export function registerCursors(app: FastifyInstance, keyring: CursorKeyring | undefined): void {
  app.addHook('onRoute', (route: RouteOptions) => {
    const query = route.schema?.querystring as { properties?: object } | undefined
    if (query?.properties === undefined || !('cursor' in query.properties)) return
    if (keyring === undefined) throw new Error(`${route.url} has cursors, which require a keyring`)
    route.preHandler = [readCursorWith(keyring), ...[route.preHandler ?? []].flat()]
    route.preSerialization = [writeNextWith(keyring), ...[route.preSerialization ?? []].flat()]
  })
}

function readCursorWith(keyring: CursorKeyring) {
  return function readCursor(request: FastifyRequest, _reply: unknown, done: () => void): void {
    const query = request.query as Query
    // The hooks of a route also run for its HEAD, which Fastify derives from it.
    if (typeof query.cursor === 'string') {
      if ((query.offset ?? 0) > 0) throw refusedField('cursor', 'must not be combined with offset')
      query.cursor = parseCursor(keyring, listing(request), query.cursor)
    }
    done()
  }
}

function writeNextWith(keyring: CursorKeyring) {
  return function writeNext(
    request: FastifyRequest,
    _reply: unknown,
    payload: unknown,
    done: (error: null, payload: unknown) => void,
  ): void {
    const end = ((payload ?? {}) as Page).next
    if (end === undefined || end instanceof NextCursor) return done(null, payload)
    const next = new NextCursor((place) => formatCursor(keyring, listing(request), place), end)
    const page: Page = { ...(payload as Page), next }
    // The number of rows before a place is unknown.
    if ((request.query as Query).cursor !== undefined) delete page.offset
    done(null, page)
  }
}

function listing({ routeOptions, params, query }: FastifyRequest): Buffer {
  return listingOf(routeOptions.url ?? '', params as object, query as object)
}
