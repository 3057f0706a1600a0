/**
 * What guests ask of channels, on its way to the manager and back. A call without an answer is asked again on the next
 * session under the same number, so that a publication is stored once however often the stream broke. The manager checks
 * every call again; what the grants rule out is answered here.
 */
import { GrantKind } from '#proto/index.ts'
import type { Grant, GuestReply as WireReply, RunRef } from '#proto/index.ts'
import { refuseCall } from '../runner/index.ts'
import type { GuestCall, GuestReply } from '../runner/index.ts'
import type { Outbox } from '../session/outbox.ts'
import { keyOf } from '../session/run-messages.ts'

type WireCall = Parameters<Outbox['guestCall']>[0]
type Pending = { call: WireCall; resolve: (reply: GuestReply) => void }

/** A SenML pack that a guest publishes, by the protocol. */
const MAX_PAYLOAD_BYTES = 256 * 1024

export class GuestCalls {
  readonly #pending = new Map<string, Pending>()
  #outbox: Outbox | undefined

  connect(outbox: Outbox): void {
    this.#outbox = outbox
    for (const { call } of this.#pending.values()) outbox.guestCall(call)
  }

  disconnect(): void {
    this.#outbox = undefined
  }

  /** Never rejects. A run that ends first must be given to `forget`. */
  ask(run: RunRef, grants: readonly Grant[], callId: number, call: GuestCall): Promise<GuestReply> {
    const wanted = call.kind === 'publish' ? GrantKind.PUBLISH : GrantKind.READ
    const place = resolveTopic(
      call.topic,
      grants.filter(({ kind }) => kind === wanted),
    )
    if (place === undefined) {
      const verb = call.kind === 'publish' ? 'publish to' : 'read from'
      const topic = JSON.stringify(call.topic.slice(0, 200))
      return Promise.resolve(refuseCall('forbidden', `this task may not ${verb} ${topic}`))
    }
    const made = toWire(run, callId, place, call)
    if (made === undefined) {
      const message = `a message may have at most ${MAX_PAYLOAD_BYTES} bytes`
      return Promise.resolve(refuseCall('too_large', message))
    }
    return new Promise((resolve) => {
      this.#pending.set(`${keyOf(run)}/${callId}`, { call: made, resolve })
      this.#outbox?.guestCall(made)
    })
  }

  answer(reply: WireReply): void {
    if (reply.run === undefined) return
    const key = `${keyOf(reply.run)}/${reply.callId}`
    const pending = this.#pending.get(key)
    this.#pending.delete(key)
    pending?.resolve(fromWire(reply))
  }

  /** The run is over: nobody waits for answers any more. */
  forget(run: RunRef): void {
    const prefix = `${keyOf(run)}/`
    for (const [key, { resolve }] of this.#pending) {
      if (!key.startsWith(prefix)) continue
      this.#pending.delete(key)
      resolve(refuseCall('unavailable', 'the run is over'))
    }
  }
}

export type Place = { channelId: string; subtopic: string }

/**
 * `topic` is the name or id of a granted channel, then a subtopic; empty, or without a known channel in front, it means
 * the only granted one where there is just one. Undefined when no grant covers it.
 */
export function resolveTopic(topic: string, grants: readonly Grant[]): Place | undefined {
  const [first = '', ...rest] = topic.split('/').filter((part) => part !== '')
  const named = grants.filter(({ name, channelId }) => first !== '' && (first === name || first === channelId))
  const isOnly = first === '' && new Set(grants.map(({ channelId }) => channelId)).size === 1
  const asked = rest.join('.')
  for (const { channelId, subtopic } of isOnly ? grants : named) {
    const granted = subtopic.replaceAll('/', '.')
    // Nothing was asked for below a grant that is limited itself: what it is limited to is meant.
    if (asked === '') return { channelId, subtopic: granted }
    if (granted === '' || asked === granted || asked.startsWith(`${granted}.`)) return { channelId, subtopic: asked }
  }
  return undefined
}

function toWire(run: RunRef, callId: number, place: Place, call: GuestCall): WireCall | undefined {
  if (call.kind === 'publish') {
    const payload = Buffer.from(call.payload)
    if (payload.length > MAX_PAYLOAD_BYTES) return undefined
    return { run, callId, call: { case: 'publish', value: { ...place, payload } } }
  }
  const { name, from, to, limit } = call
  const range = { ...(from === null ? {} : { fromSeconds: from }), ...(to === null ? {} : { toSeconds: to }) }
  return { run, callId, call: { case: 'read', value: { ...place, name, limit, ...range } } }
}

function fromWire({ outcome }: WireReply): GuestReply {
  switch (outcome.case) {
    case 'published':
      return { ok: true, records: '' }
    case 'recordsJson':
      return { ok: true, records: Buffer.from(outcome.value).toString() }
    case 'error':
      return refuseCall(outcome.value.kind, outcome.value.message)
    case undefined:
      return refuseCall('unavailable', 'the manager did not say what became of the call')
  }
}
