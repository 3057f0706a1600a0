/**
 * The plainest publish: to a channel of a domain, by a device with its secret, of a body as it is. It is what most devices send
 * most of the time, and is read from its head in one pass; whatever is not quite so takes the route of publish.ts.
 */
import type { MessageGate } from '#api/devices/index.ts'
import { parseSubtopic } from '#api/messages/index.ts'
import type { Messages } from '#api/messages/index.ts'
import type { ExpressRoute } from '#core/http/index.ts'
import { MESSAGE_TYPES } from './body.ts'
import { readMessage } from './message.ts'

/** No escapes, no query, nothing that the router would treat in another way. */
const PATH = /^(\/http)?\/m\/([\w.~-]{1,200})\/c\/([\w.~-]{1,200})(?:\/([\w.~/-]{1,400}))?$/
const CLIENT = 'Client '
const TYPES = new Set<string>(MESSAGE_TYPES)

export function expressPublish(messages: Messages, gate: MessageGate): ExpressRoute {
  return {
    take(request) {
      const { authorization, 'content-type': contentType, 'idempotency-key': key } = request.headers
      if (contentType === undefined || !TYPES.has(contentType) || key !== undefined) return undefined
      if (authorization === undefined || !authorization.startsWith(CLIENT)) return undefined
      const [, prefix = '', domain, channel, rest] = PATH.exec(request.url ?? '') ?? []
      if (channel === undefined) return undefined
      const secret = authorization.slice(CLIENT.length)
      const access = gate.authorizeNow({ kind: 'client', secret }, { domain, channel }, 'publish')
      if (access === undefined) return undefined
      return {
        name: `POST ${prefix}/m/:domain_id/c/:channel_id${rest === undefined ? '' : '/*'}`,
        work: (body) =>
          messages.publish(readMessage(contentType, body, rest === undefined ? '' : parseSubtopic(rest), () => access)),
      }
    },
  }
}
