/** The span of a publish, from the adapter to the commit. Its place in the trace is stored with the message, for what the message causes. */
import { withSpan } from '#core/tracing/index.ts'
import type { IncomingMessage } from '../model/message.ts'

export async function publishTraced(
  message: IncomingMessage,
  publish: (message: IncomingMessage) => Promise<void>,
): Promise<void> {
  const { access, protocol, subtopic, traceparent: parent } = message
  const attributes = {
    'messaging.system': 'skein',
    'messaging.operation.name': 'publish',
    'messaging.operation.type': 'send',
    'messaging.destination.name': access.channelId,
    'skein.subtopic': subtopic === '' ? undefined : subtopic,
    'messaging.client.id': access.publisherId ?? undefined,
    'network.protocol.name': protocol,
  }
  await withSpan('publish', { kind: 'producer', parent, attributes }, async ({ traceparent }) => {
    const envelope = { ...message.envelope, ...(traceparent === undefined ? {} : { traceparent }) }
    await publish({ ...message, envelope })
  })
}
