/** The envelopes of a batch, as stored with its row in the changelog. */
import type { Envelope } from '../model/envelope.ts'
import type { IncomingMessage } from '../model/message.ts'
import { isClearing } from '../model/message.ts'

/** The envelopes of a batch as JSON text, by the number of the message; undefined when there are none. */
export function formatEnvelopes(messages: readonly IncomingMessage[]): string | undefined {
  let found: Record<number, Envelope> | undefined
  messages.forEach((message, index) => {
    const envelope = isClearing(message) ? clearingEnvelope(message) : message.envelope
    if (envelope !== undefined) (found ??= {})[index] = envelope
  })
  return found === undefined ? undefined : JSON.stringify(found)
}

/** The runs of tasks that published messages of a batch. */
export function publishingRuns(messages: readonly IncomingMessage[]): string[] {
  return [...new Set(messages.flatMap(({ envelope }) => envelope?.run?.id ?? []))]
}

function clearingEnvelope({ access, subtopic, envelope }: IncomingMessage): Envelope {
  const { channelKey, publisherKey, publisherId } = access
  return { ...envelope, clears: { channelKey, subtopic, publisherKey, publisherId: publisherId ?? '' } }
}
