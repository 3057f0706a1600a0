/** Which client the state of a run may belong to: the publisher of the message that started it. */
import type { Assignment } from '#proto/index.ts'
import { refuseCall } from '../runner/index.ts'
import type { GuestReply, StateBucket } from '../runner/index.ts'

type Given = Pick<Assignment, 'daemon' | 'triggerJson'>
type Refusal = Extract<GuestReply, { ok: false }>

/** A guest can ask without end, and its messages can be large. */
const known = new WeakMap<Given, string | Refusal>()

/** The client as the protocol names it; empty: the bucket of the task. Otherwise the refusal that the guest gets. */
export function clientOf(assignment: Given, bucket: StateBucket): string | Refusal {
  // Its writes would wait for the end of a call that does not end.
  if (assignment.daemon) return refuseCall('forbidden', 'a daemon has no state: it is written with the result of a run')
  if (bucket === 'task') return ''
  let client = known.get(assignment)
  if (client === undefined) known.set(assignment, (client = publisherOf(assignment)))
  return client
}

function publisherOf({ triggerJson }: Given): string | Refusal {
  const publishers = publishersOf(triggerJson)
  const [publisher] = publishers
  if (publishers.size > 1)
    return refuseCall(
      'not_found',
      'the messages of the run have several publishers: set batch to 1 for state of a client',
    )
  return publisher ?? refuseCall('not_found', 'no message of a client started the run')
}

function publishersOf(triggerJson: string): ReadonlySet<string> {
  if (triggerJson === '') return new Set()
  const given: unknown = JSON.parse(triggerJson)
  const messages: unknown[] = Array.isArray(given) ? given : [given]
  return new Set(
    messages.flatMap((message) => {
      const publisher =
        typeof message === 'object' && message !== null && 'publisher' in message ? message.publisher : undefined
      return typeof publisher === 'string' && publisher !== '' ? [publisher] : []
    }),
  )
}
