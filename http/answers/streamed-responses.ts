/**
 * Responses of bulk routes repeat every item: megabytes of JSON, which are serialized and sent in pieces of a hundred items, so
 * that the event loop is not blocked.
 */
import { Readable } from 'node:stream'
import { setImmediate } from 'node:timers/promises'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { TObject, TSchema } from 'typebox'
import { createTurns } from '#core/turns.ts'
import { isLarge } from '../requests/bulk-turns.ts'
import { compileSerializer } from './serialize.ts'

/** Shorter lists are sent like any other response. */
const MIN_LONG_ITEMS = 500
const ITEMS_PER_PIECE = 100

type Serializer = (value: unknown) => string
type Shape = { lists: Map<string, Serializer>; fields: Serializer }

const shapes = new WeakMap<object, Shape>()

/** Streams the responses of routes with a body limit above `maxBodyBytes`. Call it before the routes are added. */
export function registerStreamedResponses(app: FastifyInstance, maxBodyBytes: number): void {
  app.addHook('onRoute', (route) => {
    if ((route.bodyLimit ?? 0) <= maxBodyBytes) return
    const { handler } = route
    route.handler = async function answer(request, reply) {
      // The handler runs in a turn of its own: the validation of a large body has just used this one.
      if (isLarge(request)) await setImmediate()
      return inTurns(request, reply, await handler.call(this, request, reply))
    }
  })
}

/** The payload of a handler, as a stream when it contains a long list. */
function inTurns(request: FastifyRequest, reply: FastifyReply, payload: unknown): unknown {
  const schema = (request.routeOptions.schema?.response as Record<string, TSchema> | undefined)?.[reply.statusCode]
  const shape = schema === undefined || typeof payload !== 'object' || payload === null ? undefined : shapeOf(schema)
  const values = payload as Readonly<Record<string, unknown>>
  const name = shape && [...shape.lists.keys()].find((one) => lengthOf(values[one]) >= MIN_LONG_ITEMS)
  if (shape === undefined || name === undefined) return payload
  void reply.type('application/json; charset=utf-8')
  return Readable.from(pieces(shape, values, name))
}

const lengthOf = (value: unknown) => (Array.isArray(value) ? value.length : 0)

async function* pieces(shape: Shape, values: Readonly<Record<string, unknown>>, name: string): AsyncGenerator<string> {
  const { [name]: items, ...others } = values as Record<string, unknown> & Record<typeof name, readonly unknown[]>
  const stringify = shape.lists.get(name) as Serializer
  const turns = createTurns()
  const head = shape.fields(others)
  yield `${head.slice(0, -1)}${head === '{}' ? '' : ','}${JSON.stringify(name)}:[`
  const all = items as readonly unknown[]
  for (let first = 0; first < all.length; first += ITEMS_PER_PIECE) {
    const texts = all.slice(first, first + ITEMS_PER_PIECE).map((item) => stringify(item))
    yield (first === 0 ? '' : ',') + texts.join(',')
    if (turns.isOver) await turns.next()
  }
  yield ']}'
}

/** The serializers of a response schema; undefined when it is not an object. */
function shapeOf(schema: TSchema): Shape | undefined {
  const known = shapes.get(schema)
  if (known !== undefined) return known
  const { properties } = schema as TObject
  if (properties === undefined) return undefined
  const lists = new Map<string, Serializer>()
  for (const [name, property] of Object.entries(properties)) {
    const { items } = property as TSchema & { items?: TSchema }
    if (items !== undefined) lists.set(name, compileSerializer({ schema: items }))
  }
  const shape = { lists, fields: compileSerializer({ schema: { ...schema, required: [] } }) }
  shapes.set(schema, shape)
  return shape
}
