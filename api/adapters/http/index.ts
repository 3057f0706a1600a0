/** The HTTP adapter: messages in and out of the platform over HTTP. No rule of its own. */
import type { Messages } from '#api/messages/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import { liveRoutes } from './live.ts'
import type { LiveDeps } from './live.ts'
import { publishRoutes } from './publish.ts'
import { readRoutes } from './read.ts'

export { deletionRoutes } from './delete.ts'
export { usageRoutes } from './usage.ts'

export type HttpAdapterDeps = LiveDeps & { messages: Messages }

/** Routes to publish, to read and to follow; `messages` is not closed by them. */
export function httpMessageRoutes({ messages, ...access }: HttpAdapterDeps): RoutePlugin {
  return async (app) => {
    await publishRoutes(messages, access)(app)
    await readRoutes(messages, access)(app)
    await liveRoutes(messages, access)(app)
  }
}
