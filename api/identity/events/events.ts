/** Composition of the slice: the shared reader, the streams over HTTP, the publisher for Redis. */
import type { Database } from '#core/database/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { Streams } from '#core/streams/index.ts'
import type { AccessPolicy, Origin, UserPrincipal } from '../access/index.ts'
import type { Journal } from '../journal/index.ts'
import { startEventFanOut } from './fan-out.ts'
import { startEventPublisher } from './publisher.ts'
import { eventRoutes } from './routes.ts'
import { EventsService } from './service.ts'

export type EventsOptions = {
  database: Database
  journal: Journal
  access: AccessPolicy
  /** Returns the user of a token. Throws `unauthenticated`. */
  authenticate: (token: string, origin: Origin) => Promise<UserPrincipal>
  streams: Streams
  logger: Logger
  /** Undefined disables events to Redis. */
  redisUrl: string | undefined
  /** Approximate number of entries that each Redis stream keeps. 0 disables events to Redis. */
  streamLength: number
  /** Ends the streams when it is aborted, so that a stopping server does not wait for their readers. */
  signal: AbortSignal
  heartbeatMs?: number
}

export type Events = { readonly service: EventsService; readonly routes: RoutePlugin; stop(): Promise<void> }

export async function startEvents(options: EventsOptions): Promise<Events> {
  const { database, journal, access, authenticate, streams, logger, redisUrl, streamLength, signal, heartbeatMs } =
    options
  const fanOut = startEventFanOut({ database, journal, logger })
  const onAbort = () => void fanOut.stop()
  signal.addEventListener('abort', onAbort, { once: true })
  const end = async () => {
    signal.removeEventListener('abort', onAbort)
    await fanOut.stop()
  }
  try {
    const publisher =
      redisUrl === undefined || streamLength === 0
        ? undefined
        : await startEventPublisher({ database, journal, logger, redisUrl, streamLength })
    const service = new EventsService({ database, access, fanOut, budget: streams.budget, logger })
    return {
      service,
      routes: eventRoutes({ events: service, authenticate, streams, heartbeatMs }),
      async stop() {
        await publisher?.stop()
        await end()
      },
    }
  } catch (error) {
    await end()
    throw error
  }
}
