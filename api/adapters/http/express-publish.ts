/**
 * The plainest publish: to a channel of a domain, by a device with its secret, of a body as it is. It is what most devices send
 * most of the time, and is read from its head in one pass; whatever is not quite so takes the route of publish.ts.
 */
import type { ChannelPath, MessageAccess, MessageCredentials, MessageGate } from '#api/devices/index.ts'
import { parseSubtopic } from '#api/messages/index.ts'
import type { Messages } from '#api/messages/index.ts'
import type { ExpressHead, ExpressRoute, ExpressTaken } from '#core/http/index.ts'
import { MESSAGE_TYPES } from './body.ts'
import { readMessage } from './message.ts'

/** No escapes, no query, nothing that the router would treat in another way. */
const PATH = /^(\/http)?\/m\/([\w.~-]{1,200})\/c\/([\w.~-]{1,200})(?:\/([\w.~/-]{1,400}))?$/
const CLIENT = 'Client '
const TYPES = new Set<string>(MESSAGE_TYPES)

type PlainPublish = {
  name: string
  contentType: string
  credentials: MessageCredentials
  path: ChannelPath
  rest: string | undefined
}

export function expressPublish(messages: Messages, gate: MessageGate): ExpressRoute {
  const takenBy = ({ name, contentType, rest }: PlainPublish, access: MessageAccess): ExpressTaken => ({
    name,
    work: (body) =>
      messages.publish(readMessage(contentType, body, rest === undefined ? '' : parseSubtopic(rest), () => access)),
  })
  return {
    take(head) {
      const plain = plainPublish(head)
      const access = plain && gate.authorizeNow(plain.credentials, plain.path, 'publish')
      return access && takenBy(plain, access)
    },
    learn(head) {
      const plain = plainPublish(head)
      return plain && gate.authorize(plain.credentials, plain.path, 'publish').then((access) => takenBy(plain, access))
    },
  }
}

function plainPublish({ url = '', headers }: ExpressHead): PlainPublish | undefined {
  const { authorization, 'content-type': contentType } = headers
  if (typeof contentType !== 'string' || !TYPES.has(contentType)) return undefined
  if (typeof authorization !== 'string' || !authorization.startsWith(CLIENT)) return undefined
  if (headers['idempotency-key'] !== undefined) return undefined
  const [, prefix = '', domain, channel, rest] = PATH.exec(url) ?? []
  if (channel === undefined) return undefined
  return {
    name: `POST ${prefix}/m/:domain_id/c/:channel_id${rest === undefined ? '' : '/*'}`,
    contentType,
    credentials: { kind: 'client', secret: authorization.slice(CLIENT.length) },
    path: { domain, channel },
    rest,
  }
}
