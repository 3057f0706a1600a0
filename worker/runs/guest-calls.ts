/**
 * Calls of guests about channels and the state of their task, sent to the manager and answered. A call without an answer is sent again on the next session
 * with the same number, so that a publication is stored once after any number of interruptions. The manager checks every
 * call again; calls without a grant are refused here.
 */
import { GrantKind } from '#proto/index.ts'
import type { Assignment, Grant, GuestReply as WireReply, RunRef } from '#proto/index.ts'
import { isStateCall, refuseCall } from '../runner/index.ts'
import type { ChannelCall, GuestReply, HttpCall, GuestCall, StateCall, StateValues } from '../runner/index.ts'
import type { Outbox } from '../session/outbox.ts'
import { keyOf } from '../session/run-messages.ts'
import { clientOf } from '../session/state-bucket.ts'

type WireCall = Parameters<Outbox['guestCall']>[0]
type Pending = { call: WireCall; resolve: (reply: GuestReply) => void }

/** Limit of a published SenML pack, from the protocol. */
const MAX_PAYLOAD_BYTES = 256 * 1024

/** The run of a guest that asks. */
type AskingRun = Pick<Assignment, 'grants' | 'daemon' | 'triggerJson'> & { run: RunRef }

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

  /** Never rejects. A run that ends first must be passed to `endCallsOf`. */
  async ask(assignment: AskingRun, callId: number, call: Exclude<GuestCall, HttpCall>): Promise<GuestReply> {
    const made = isStateCall(call) ? this.#stateCall(assignment, callId, call) : channelCall(assignment, callId, call)
    if ('ok' in made) return made
    return await new Promise((resolve) => {
      this.#pending.set(`${keyOf(assignment.run)}/${callId}`, { call: made, resolve })
      this.#outbox?.guestCall(made)
    })
  }

  #stateCall(assignment: AskingRun, callId: number, call: StateCall): WireCall | GuestReply {
    const client = clientOf(assignment, call.bucket)
    if (typeof client !== 'string') return client
    if (this.#outbox?.keepsState === false)
      return refuseCall('unavailable', 'the task manager is of an earlier version and keeps no state of tasks')
    if (call.kind === 'state_open') return { ok: true, records: '' }
    const { run } = assignment
    if (call.kind === 'state_get')
      return { run, callId, call: { case: 'stateGet', value: { client, keys: call.keys } } }
    return { run, callId, call: { case: 'stateKeys', value: { client, after: call.after } } }
  }

  answer(reply: WireReply): void {
    if (reply.run === undefined) return
    const key = `${keyOf(reply.run)}/${reply.callId}`
    const pending = this.#pending.get(key)
    this.#pending.delete(key)
    pending?.resolve(fromWire(reply))
  }

  /** The run has ended: its answers have no receiver. */
  endCallsOf(run: RunRef): void {
    const prefix = `${keyOf(run)}/`
    for (const [key, { resolve }] of this.#pending) {
      if (!key.startsWith(prefix)) continue
      this.#pending.delete(key)
      resolve(refuseCall('unavailable', 'the run has ended'))
    }
  }
}

export type ResolvedTopic = { channelId: string; subtopic: string }

/**
 * `topic` is the name or id of a granted channel, then a subtopic; empty, or without a known channel in front, it refers
 * to the only granted one. Undefined if no grant covers it.
 */
export function resolveTopic(topic: string, grants: readonly Grant[]): ResolvedTopic | undefined {
  const [first = '', ...rest] = topic.split('/').filter((part) => part !== '')
  const named = grants.filter(({ name, channelId }) => first !== '' && (first === name || first === channelId))
  const isOnly = first === '' && new Set(grants.map(({ channelId }) => channelId)).size === 1
  const asked = rest.join('.')
  for (const { channelId, subtopic } of isOnly ? grants : named) {
    const granted = subtopic.replaceAll('/', '.')
    // Without a requested subtopic, the subtopic of the grant is used.
    if (asked === '') return { channelId, subtopic: granted }
    if (granted === '' || asked === granted || asked.startsWith(`${granted}.`)) return { channelId, subtopic: asked }
  }
  return undefined
}

function channelCall({ run, grants }: AskingRun, callId: number, call: ChannelCall): WireCall | GuestReply {
  const wanted = call.kind === 'publish' ? GrantKind.PUBLISH : GrantKind.READ
  const place = resolveTopic(
    call.topic,
    grants.filter(({ kind }) => kind === wanted),
  )
  if (place === undefined) {
    const verb = call.kind === 'publish' ? 'publish to' : 'read from'
    const topic = JSON.stringify(call.topic.slice(0, 200))
    return refuseCall('forbidden', `the task has no grant to ${verb} ${topic}`)
  }
  return (
    toWire(run, callId, place, call) ?? refuseCall('too_large', `a message must be at most ${MAX_PAYLOAD_BYTES} bytes`)
  )
}

function toWire(run: RunRef, callId: number, place: ResolvedTopic, call: ChannelCall): WireCall | undefined {
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
    case 'stateValues': {
      const values: StateValues = outcome.value.values.map(({ version, value }) =>
        version === 0n ? null : [Number(version), value.toBase64()],
      )
      return { ok: true, records: JSON.stringify(values) }
    }
    case 'stateNames':
      return { ok: true, records: JSON.stringify(outcome.value.keys) }
    case 'error':
      return refuseCall(outcome.value.kind, outcome.value.message)
    case undefined:
      return refuseCall('unavailable', 'the manager returned no outcome of the call')
  }
}
