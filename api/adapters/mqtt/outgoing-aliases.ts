/** Topic aliases that the server assigns on one connection (section 3.3.2.3.4), to clients that allow them. */

/** The maximum number of aliases on one connection, however many the client allows. */
const MAX_ALIASES = 100
/** A shorter topic takes fewer bytes than its alias. */
const MIN_TOPIC_BYTES = 8

export type TopicAlias = { number: number; isNew: boolean }

export class OutgoingAliases {
  readonly #maximum: number
  readonly #numbers = new Map<string, number>()

  /** `maximum`: from CONNECT. */
  constructor(maximum: number) {
    this.#maximum = Math.min(maximum, MAX_ALIASES)
  }

  /** The alias of a topic, which the first topics get; a new one must be announced with its topic. */
  of(topic: string): TopicAlias | undefined {
    const known = this.#numbers.get(topic)
    if (known !== undefined) return { number: known, isNew: false }
    if (this.#numbers.size >= this.#maximum || Buffer.byteLength(topic) < MIN_TOPIC_BYTES) return undefined
    return { number: this.#numbers.size + 1, isNew: true }
  }

  /** The alias was sent to the client. */
  announced(topic: string, { number }: TopicAlias): void {
    this.#numbers.set(topic, number)
  }
}
