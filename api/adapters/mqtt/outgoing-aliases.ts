/** Topic aliases that this side gives out on one connection (section 3.3.2.3.4), to clients that allow them. */

/** Given out on one connection at most, however many the client allows. */
const MAX_ALIASES = 100
/** A shorter topic takes fewer bytes than its alias. */
const MIN_TOPIC_BYTES = 8

export type TopicAlias = { number: number; isNew: boolean }

export class OutgoingAliases {
  readonly #maximum: number
  readonly #numbers = new Map<string, number>()

  /** `maximum`: as the client said in CONNECT. */
  constructor(maximum: number) {
    this.#maximum = Math.min(maximum, MAX_ALIASES)
  }

  /** The alias of a topic, which the first topics get; a new one is to be announced with its topic. */
  of(topic: string): TopicAlias | undefined {
    const known = this.#numbers.get(topic)
    if (known !== undefined) return { number: known, isNew: false }
    if (this.#numbers.size >= this.#maximum || Buffer.byteLength(topic) < MIN_TOPIC_BYTES) return undefined
    return { number: this.#numbers.size + 1, isNew: true }
  }

  /** The client was told. */
  announced(topic: string, { number }: TopicAlias): void {
    this.#numbers.set(topic, number)
  }
}
