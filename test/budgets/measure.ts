/** Measures operations, one after the other. */
import type { Counted, Counters } from './counters.ts'
import type { FrameRelay } from './frame-relay.ts'
import type { WriteAheadLog, Written } from './write-ahead-log.ts'

export type Counts = Counted & Written
export type Measure = keyof Counts

export type Sample = { counts: Counts; statements: string[]; records: string[] }

export type Operation = {
  /** Sends what is measured; calls back once it is answered. */
  send(answered: () => void): void
  /** Whether its effect, which may follow the answer, has begun; the operation is over when nothing happens any more. */
  hasBegun?(counted: Counted): boolean
}

export type Meters = { counters: Counters; relay: FrameRelay; log: WriteAheadLog }

const POLL_MS = 3
/** An operation is over when nothing has happened for this many polls, which a busy process delays too. */
const QUIET_POLLS = 5

export class Measuring implements Disposable {
  readonly #meters: Meters
  readonly #poll: NodeJS.Timeout
  #onPoll: (() => void) | undefined

  constructor(meters: Meters) {
    this.#meters = meters
    // One timer for all operations, because timers are counted.
    this.#poll = setInterval(() => this.#onPoll?.(), POLL_MS)
  }

  async samples(operation: Operation, count: number): Promise<Sample[]> {
    const { log, counters } = this.#meters
    const spans: [string, string][] = []
    const taken: { counts: Counted; statements: string[] }[] = []
    for (let index = 0; index < count; index++) {
      const low = await log.place()
      counters.takeStatements()
      const counts = await this.#run(operation)
      taken.push({ counts, statements: counters.takeStatements() })
      spans.push([low, await log.place()])
    }
    const written = await log.written(spans)
    return taken.map(({ counts, statements }, index) => {
      const { records, ...ofLog } = written[index] as (typeof written)[number]
      return { counts: { ...counts, ...ofLog }, statements, records }
    })
  }

  [Symbol.dispose](): void {
    clearInterval(this.#poll)
  }

  /** What happens until nothing does any more. The promise that is returned is not counted. */
  #run({ send, hasBegun = () => true }: Operation): Promise<Counted> {
    return new Promise((resolve) => {
      const before = this.#counted()
      let [activity, quiet, isAnswered] = [this.#activity(), 0, false]
      this.#onPoll = () => {
        const now = this.#activity()
        const isQuiet = isAnswered && this.#meters.counters.isAnswered && now === activity
        activity = now
        quiet = isQuiet ? quiet + 1 : 0
        const counted = difference(this.#counted(), before)
        if (quiet < QUIET_POLLS || !hasBegun(counted)) return
        this.#onPoll = undefined
        resolve(counted)
      }
      send(() => (isAnswered = true))
    })
  }

  #counted(): Counted {
    return this.#meters.counters.counted(this.#meters.relay.wire)
  }

  #activity(): number {
    return this.#meters.counters.activity + this.#meters.relay.wire.bytes
  }
}

function difference(after: Counted, before: Counted): Counted {
  const names = Object.keys(after) as (keyof Counted)[]
  return Object.fromEntries(names.map((name) => [name, after[name] - before[name]])) as Counted
}
