/** The fields of a consumer from the body of a request. */
import { parseSubtopicFilter } from '#api/messages/index.ts'
import { durationWithin } from '#core/durations.ts'
import { refusedField } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { ConsumerFields } from './repository.ts'
import { DEFAULTS, MAX_DELAY_MS, MIN_ACK_WAIT_MS } from './schema.ts'
import type { ConsumerFilter, ConsumerUpdate } from './schema.ts'

const MAX_PUBLISHERS = 100
const EVERY_SUBTOPIC = '>'

/** Absent fields are those of before, or the defaults. Throws `malformed`. */
export function fieldsOf(input: ConsumerUpdate, before?: ConsumerFields): ConsumerFields {
  const name = input.name ?? before?.name ?? ''
  if (isId(name)) throw refusedField('/name', 'must not have the form of an id')
  return {
    name,
    ...(input.filter === undefined && before !== undefined
      ? { subtopic: before.subtopic, publisherIds: before.publisherIds, protocol: before.protocol }
      : filterOf(input.filter ?? {})),
    order: input.order ?? before?.order ?? 'client',
    maxInFlight: input.max_in_flight ?? before?.maxInFlight ?? DEFAULTS.maxInFlight,
    ackWaitMs:
      input.ack_wait === undefined
        ? (before?.ackWaitMs ?? DEFAULTS.ackWaitMs)
        : durationWithin(input.ack_wait, '/ack_wait', [MIN_ACK_WAIT_MS, MAX_DELAY_MS]),
    maxDeliver: input.max_deliver ?? before?.maxDeliver ?? DEFAULTS.maxDeliver,
  }
}

function filterOf({ subtopic, publisher, protocol }: ConsumerFilter) {
  const publisherIds = publisher === undefined || publisher === '' ? null : publisher.split(',')
  if (publisherIds !== null && (publisherIds.length > MAX_PUBLISHERS || !publisherIds.every(isId)))
    throw refusedField('/filter/publisher', `must be the ids of 1 to ${MAX_PUBLISHERS} clients, separated by commas`)
  return {
    // Empty filters nothing, as elsewhere.
    subtopic: subtopic === undefined || subtopic === '' ? EVERY_SUBTOPIC : subtopicOf(subtopic),
    publisherIds: publisherIds?.map((id) => id.toLowerCase()) ?? null,
    protocol: protocol ?? null,
  }
}

function subtopicOf(text: string): string {
  try {
    return parseSubtopicFilter(text)
  } catch (error) {
    throw refusedField('/filter/subtopic', (error as Error).message.replace(/^the subtopic /, ''))
  }
}
