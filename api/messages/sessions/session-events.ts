/** Journal records of session events, for operators and readers of events (contract sections 7.3 and 10). */
import type { Recorder } from '#api/identity/index.ts'
import { instanceOf } from '#core/nodes/index.ts'

export type SessionEvent = 'connect' | 'disconnect' | 'subscribe' | 'unsubscribe'

/** A session with its client, as selected by queries. */
export type SessionFacts = {
  client_key: number
  client_id: string
  domain_key: number
  client_identifier: string
}

export function recordSessionEvent(
  record: Recorder,
  what: SessionEvent,
  session: SessionFacts,
  node: string,
  more: { channelKeys?: readonly number[]; topics?: readonly string[] } = {},
): void {
  const { client_key: clientKey, client_id: clientId, domain_key: domainKey, client_identifier: identifier } = session
  record({
    operation: `mqtt.${what}`,
    domainKey,
    entityKeys: [clientKey, ...new Set(more.channelKeys)],
    attributes: {
      client_id: clientId,
      subscriber_id: identifier,
      instance: instanceOf(node),
      ...(more.topics === undefined ? {} : { topics: more.topics }),
    },
  })
}
