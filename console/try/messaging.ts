/** What a guest of a trial publishes and reads: a publication is listed and not sent, a read returns the records of the trial. */
import type { SenmlRecord, TryReport } from './protocol.ts'

const MAX_OUTPUT_BYTES = 65_536
const MAX_PUBLICATIONS = 1_000
const MAX_MESSAGE_BYTES = 262_144
const MAX_READ = 1_000

export type Query = { topic?: string; name?: string; from?: number; to?: number; limit?: number }
export type Refusal = { kind: 'malformed' | 'too_large' | 'rate_limited'; message: string }

export type Messaging = {
  publish(topic: string, payload: string): undefined | Refusal
  /** Records as JSON. */
  read(query: Query): string | Refusal
  seen(): Pick<TryReport, 'publications' | 'reads'>
}

export function createMessaging(records: readonly SenmlRecord[]): Messaging {
  const publications: { topic: string; payload: string }[] = []
  const reads = new Set<string>()
  return {
    publish(topic, payload) {
      if (new TextEncoder().encode(payload).length > MAX_MESSAGE_BYTES)
        return { kind: 'too_large', message: 'a message has at most 256 KiB' }
      if (publications.length >= MAX_PUBLICATIONS)
        return { kind: 'rate_limited', message: `a trial lists ${MAX_PUBLICATIONS} messages` }
      if (!isPack(payload)) return { kind: 'malformed', message: 'a message is a SenML pack in JSON' }
      publications.push({ topic, payload })
      return undefined
    },
    read({ topic = '', name, from = -Infinity, to = Infinity, limit = MAX_READ }) {
      reads.add(topic)
      const found = records
        .filter((record) => (name === undefined || record.n === name) && record.t >= from && record.t < to)
        .slice(0, Math.min(limit, MAX_READ))
      return JSON.stringify(found)
    },
    seen: () => ({ publications, reads: [...reads] }),
  }
}

function isPack(text: string): boolean {
  try {
    const pack: unknown = JSON.parse(text)
    return Array.isArray(pack) && pack.length > 0 && pack.every((one) => typeof one === 'object' && one !== null)
  } catch {
    return false
  }
}

/** The first bytes of an output. */
export class GuestOutput {
  readonly #parts: Uint8Array[] = []
  #bytes = 0

  write(data: Uint8Array): void {
    const kept = data.slice(0, Math.max(0, MAX_OUTPUT_BYTES - this.#bytes))
    this.#parts.push(kept)
    this.#bytes += kept.length
  }

  text(): string {
    const decoder = new TextDecoder()
    return this.#parts.map((part) => decoder.decode(part, { stream: true })).join('') + decoder.decode()
  }
}
