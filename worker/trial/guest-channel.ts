/** The calls of a guest that is tried: publications are kept for the report, reads get the given records, state is in memory. */
import { kindOf } from '#core/errors/index.ts'
import type { Json } from '#guests/wasm/index.ts'
import type { MemoryState } from '#guests/calls/index.ts'
import { isStateCall, refuseCall } from '../runner/index.ts'
import type { GuestCall, GuestReply } from '../runner/index.ts'

/** Publications in one report; further ones are counted. */
const MAX_REPORTED = 100

/** A record of a message with the field names of SenML. */
export type TriedRecord = { n: string; t: number }

export type Publication = {
  topic: string
  /** The pack, or the text if it is not JSON. */
  payload: Json
  /** The reason why the platform would not store it. */
  refused?: string
}

export type ChannelRules = {
  /** Throws what the platform answers to the guest. */
  requirePayload: (payload: Uint8Array) => unknown
  /** Throws if the message would be dropped after it was accepted. */
  requireStorable: (payload: Uint8Array) => unknown
}

export class GuestChannel {
  readonly #rules: ChannelRules
  readonly #records: readonly TriedRecord[]
  readonly #state: MemoryState
  readonly publications: Publication[] = []
  publicationCount = 0

  /** `state`: of the task, for the runs of one trial. */
  constructor(rules: ChannelRules, records: readonly TriedRecord[], state: MemoryState) {
    this.#rules = rules
    this.#records = records
    this.#state = state
  }

  answer(call: GuestCall): GuestReply {
    if (call.kind === 'publish') return this.#publish(call.topic, call.payload)
    if (call.kind === 'http') return refuseCall('forbidden', 'a trial sends no HTTP requests')
    if (isStateCall(call)) return this.#state.answer(call, { hasClient: this.#records.length > 0 })
    return { ok: true, records: JSON.stringify(this.#find(call)) }
  }

  #publish(topic: string, payload: string): GuestReply {
    const bytes = Buffer.from(payload)
    const refusal = refusalOf(() => this.#rules.requirePayload(bytes))
    const refused = refusal ?? refusalOf(() => this.#rules.requireStorable(bytes))
    this.publicationCount += 1
    if (this.publications.length < MAX_REPORTED) {
      this.publications.push({
        topic,
        payload: jsonOrText(payload),
        ...(refused === undefined ? {} : { refused: refused.message }),
      })
    }
    return refusal === undefined ? { ok: true, records: '' } : refuseCall(refusal.kind, refusal.message)
  }

  /** Newest first, as the platform answers. */
  #find({ name, from, to, limit }: Extract<GuestCall, { kind: 'read' }>): TriedRecord[] {
    return this.#records
      .filter((record) => name === '' || record.n === name)
      .filter((record) => (from === null || record.t >= from) && (to === null || record.t < to))
      .toSorted((one, other) => other.t - one.t)
      .slice(0, limit)
  }
}

function refusalOf(check: () => unknown): { kind: string; message: string } | undefined {
  try {
    check()
    return undefined
  } catch (error) {
    return { kind: kindOf(error), message: error instanceof Error ? error.message : String(error) }
  }
}

function jsonOrText(payload: string): Json {
  try {
    return JSON.parse(payload) as Json
  } catch {
    return payload
  }
}
