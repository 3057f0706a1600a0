/**
 * Bulk requests wait for a turn before their body is parsed: parsing and writing thousands of rows keep the process and the database
 * busy for seconds, so that several of them at a time would delay every other request. The body has been received before, so a slow
 * upload holds no turn.
 */
import type { ServerResponse } from 'node:http'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { ServiceError } from '#core/errors/index.ts'
import { SMALL_JSON_BYTES } from '#core/json-text.ts'
import type { SlotOwner, Slots } from '#core/slots.ts'

export type BulkTurns = {
  readonly slots: Slots
  /** Returns the owner whose share the request takes. It must not throw: the handler refuses invalid requests. */
  ownerOf(request: FastifyRequest): Promise<SlotOwner>
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Large requests of the route wait for a turn; the function counts the rows that a parsed body stands for. */
    bulk?: { turns: BulkTurns; rowsOf(body: unknown): number }
  }
}

/** Requests for at most this many rows have no turn: they cost about what a request for one row costs. */
const MAX_SMALL_ROWS = 100

class Turn {
  readonly #turns: BulkTurns
  readonly #response: ServerResponse
  #taking: Promise<() => void> | undefined
  #isWorking = false

  constructor(turns: BulkTurns, response: ServerResponse) {
    this.#turns = turns
    this.#response = response
  }

  /** Resolves when the request has its turn. Throws `unavailable` when it has waited for too long, or when the caller is gone. */
  async begin(request: FastifyRequest): Promise<void> {
    this.#taking ??= this.#take(request)
    await this.#taking
  }

  /** Ends the turn with the work, also when the caller is gone before: what has begun goes on. */
  async during<T>(work: () => Promise<T>): Promise<T> {
    this.#isWorking = true
    try {
      return await work()
    } finally {
      const release = await this.#taking?.catch(() => undefined)
      release?.()
    }
  }

  async #take(request: FastifyRequest): Promise<() => void> {
    const { slots, ownerOf } = this.#turns
    const leaving = new AbortController()
    const leave = () => leaving.abort(new ServiceError('unavailable', 'the caller left before its turn'))
    const response = this.#response
    response.once('close', leave)
    try {
      const owner = await ownerOf(request)
      if (response.destroyed) leave()
      const release = await slots.take(owner, leaving.signal)
      // A request can end before its handler: its body may be invalid.
      for (const event of ['finish', 'close'])
        response.once(event, () => {
          if (!this.#isWorking) release()
        })
      return release
    } finally {
      response.off('close', leave)
    }
  }
}

const turns = new WeakMap<FastifyRequest, Turn>()

/** Call it before the routes are added. */
export function registerBulkTurns(app: FastifyInstance): void {
  app.addHook('onRoute', (route) => {
    const { bulk } = route.config ?? {}
    if (bulk === undefined) return
    route.onRequest = [
      ...[route.onRequest ?? []].flat(),
      (request, reply, done) => {
        turns.set(request, new Turn(bulk.turns, reply.raw))
        done()
      },
    ]
    const { handler } = route
    route.handler = async function answer(request, reply) {
      const turn = turns.get(request) as Turn
      return await turn.during(async () => {
        if (isLarge(request) || bulk.rowsOf(request.body) > MAX_SMALL_ROWS) await turn.begin(request)
        return (await handler.call(this, request, reply)) as unknown
      })
    }
  })
}

/** Waits for the turn of a request whose large body is about to be parsed; at once on a route without turns. */
export async function awaitTurn(request: FastifyRequest): Promise<void> {
  await turns.get(request)?.begin(request)
}

/** A body without a length may be large. */
export function isLarge({ headers, body }: FastifyRequest): boolean {
  return body !== undefined && !(Number(headers['content-length']) <= SMALL_JSON_BYTES)
}
