/** One stream of a domain: events, tasks and any number of channels over one connection. */
import type { DeliveryService } from '#api/consumers/index.ts'
import type { MessageGate } from '#api/devices/index.ts'
import type { AccessPolicy, EventsService, Logins, PageLogins } from '#api/identity/index.ts'
import type { Messages } from '#api/messages/index.ts'
import type { Database } from '#core/database/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startAccessWatch } from '#core/streams/index.ts'
import type { FrameEndpoint } from '#core/streams/index.ts'
import { startTaskEventFanOut } from '#queues/index.ts'
import { streamRoutes } from './routes.ts'
import { StreamSession } from './session.ts'
import { Sources } from './sources.ts'

export type DomainStreamsDeps = {
  database: Database
  access: AccessPolicy
  tokens: Logins
  pages: PageLogins
  /** Rights are not checked while they are not known to be current. */
  isFresh: () => boolean
  events: EventsService
  messages: Messages
  gate: MessageGate
  consumers: DeliveryService
  logger: Logger
}

export type DomainStreams = {
  readonly endpoint: FrameEndpoint
  readonly routes: RoutePlugin
  stop(): Promise<void>
}

const PATH = /^\/([^/]+)\/stream$/

/** Undefined where it is not percent-encoded UTF-8. */
function decoded(segment: string | undefined): string | undefined {
  try {
    return segment === undefined ? undefined : decodeURIComponent(segment)
  } catch {
    return undefined
  }
}

export function startDomainStreams(deps: DomainStreamsDeps): DomainStreams {
  const { database, access, tokens, pages, events, messages, gate, consumers, logger } = deps
  const tasks = startTaskEventFanOut(database, logger)
  const watch = startAccessWatch(deps.isFresh)
  const sources = new Sources({ events, messages, gate, tasks, consumers })
  const session = { access, tokens, pages, sources, watch, logger }
  return {
    endpoint: {
      match(path) {
        const name = decoded(PATH.exec(path)?.[1])
        if (name === undefined) return undefined
        return (request, socket) => new StreamSession(session, name, request, socket)
      },
    },
    routes: streamRoutes(access),
    async stop() {
      watch.stop()
      await tasks.stop()
    },
  }
}
