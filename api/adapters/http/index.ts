/** The HTTP adapter: publishing, reading and following of messages. It has no rules of its own. */
import type { Messages } from '#api/messages/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { liveRoutes } from './live.ts'
import type { LiveDeps } from './live.ts'
import { publishRoutes } from './publish.ts'
import { topicPublishRoute } from './publish-by-topic.ts'
import { readRoutes } from './read.ts'

export { deletionRoutes } from './delete.ts'
export { deviceStateRoutes } from './device-state.ts'
export { deviceCommandRoutes } from './device-commands.ts'
export { icebergRoutes } from './iceberg.ts'
export { usageRoutes } from './usage.ts'

export type HttpAdapterDeps = LiveDeps & { messages: Messages }

/** Routes to publish, read and follow; they do not close `messages`. */
export function httpMessageRoutes({ messages, ...access }: HttpAdapterDeps): RoutePlugin {
  return async (app) => {
    await publishRoutes(messages, access)(app)
    await topicPublishRoute(messages, access)(app)
    await readRoutes(messages, access)(app)
    await liveRoutes(messages, access)(app)
  }
}
