/**
 * Work of several domains in turn: one piece of each domain with work goes before the second of any of them, and no domain has
 * two pieces under way. A piece is asked for by its key; whoever asks for it while it waits or is under way shares it.
 */
import { ServiceError } from '#core/errors/index.ts'

export type DomainQueueLimits = {
  /** Pieces under way, each of another domain. */
  maxUnderWay: number
  /** Pieces that may wait for a domain. */
  maxWaiting: number
  /** No piece waits longer to begin. */
  waitDeadlineMs: number
}

/** `place`, from 0, is held by no other piece that is under way. The signal aborts when nobody waits for the piece any more. */
export type Piece = (place: number, signal: AbortSignal) => Promise<void>

type Job = {
  key: string
  work: Piece
  /** Number of askers per domain. */
  askers: Map<string, number>
  abort: AbortController
  outcome: PromiseWithResolvers<void>
  /** Undefined: it waits. */
  underWay: { domain: string; place: number } | undefined
}

export class DomainQueue {
  readonly #limits: DomainQueueLimits
  readonly #jobs = new Map<string, Job>()
  /** Jobs that wait, per domain; the domain whose turn is next comes first. */
  readonly #waiting = new Map<string, Job[]>()

  constructor(limits: DomainQueueLimits) {
    this.#limits = limits
  }

  /**
   * Resolves when the piece is done. Rejects with what it threw, with the reason of the signal, and with `rate_limited` when too
   * many pieces wait for the domain or this one has waited for too long.
   */
  async run(domain: string, key: string, work: Piece, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted()
    for (let left = this.#jobs.get(key); left?.abort.signal.aborted === true; left = this.#jobs.get(key)) {
      // It ends, because nobody waited for it: whoever asks now asks anew.
      await left.outcome.promise.catch(() => undefined)
    }
    const job = this.#join(domain, key, work)
    const gone = Promise.withResolvers<never>()
    const onAbort = () => gone.reject(signal.reason)
    signal.addEventListener('abort', onAbort, { once: true })
    const { waitDeadlineMs } = this.#limits
    const deadline = setTimeout(() => {
      if (job.underWay === undefined) gone.reject(tooMany(`it has waited for ${waitDeadlineMs / 1000} s`))
    }, waitDeadlineMs)
    try {
      this.#begin()
      await Promise.race([job.outcome.promise, gone.promise])
    } finally {
      clearTimeout(deadline)
      signal.removeEventListener('abort', onAbort)
      this.#leave(domain, job)
    }
  }

  /** 0: under way; else the number of pieces up to this one, in the order in which they will begin. Undefined: there is no such piece. */
  positionOf(key: string): number | undefined {
    const job = this.#jobs.get(key)
    if (job === undefined) return undefined
    return job.underWay === undefined ? this.#order().indexOf(job) + 1 : 0
  }

  /** Resolves when nothing is under way any more; what waits is refused by its askers' signals. */
  async settled(): Promise<void> {
    await Promise.allSettled([...this.#jobs.values()].map(({ outcome }) => outcome.promise))
  }

  #join(domain: string, key: string, work: Piece): Job {
    const found = this.#jobs.get(key)
    const job: Job = found ?? {
      key,
      work,
      askers: new Map(),
      abort: new AbortController(),
      outcome: Promise.withResolvers<void>(),
      underWay: undefined,
    }
    const asked = job.askers.get(domain) ?? 0
    if (asked === 0 && job.underWay === undefined) {
      const waiting = this.#waiting.get(domain) ?? []
      const { maxWaiting } = this.#limits
      if (waiting.length >= maxWaiting) throw tooMany(`${maxWaiting} components of the domain wait already`)
      waiting.push(job)
      this.#waiting.set(domain, waiting)
    }
    if (found === undefined) {
      this.#jobs.set(key, job)
      // Its askers hear of it; when the last of them has left, nobody does.
      job.outcome.promise.catch(() => undefined)
    }
    job.askers.set(domain, asked + 1)
    return job
  }

  #leave(domain: string, job: Job): void {
    const asked = (job.askers.get(domain) ?? 0) - 1
    if (asked > 0) return void job.askers.set(domain, asked)
    job.askers.delete(domain)
    this.#dequeue(domain, job)
    if (job.askers.size > 0) return
    if (job.underWay === undefined) {
      this.#jobs.delete(job.key)
      job.outcome.resolve()
    } else job.abort.abort(new ServiceError('unavailable', 'nobody waits for it any more'))
  }

  #dequeue(domain: string, job: Job): void {
    const waiting = this.#waiting.get(domain)?.filter((one) => one !== job) ?? []
    if (waiting.length === 0) this.#waiting.delete(domain)
    else this.#waiting.set(domain, waiting)
  }

  /** Begins as many pieces as there are places, each of a domain that has none under way. */
  #begin(): void {
    for (;;) {
      const underWay = [...this.#jobs.values()].flatMap((job) => job.underWay ?? [])
      if (underWay.length >= this.#limits.maxUnderWay) return
      const domain = [...this.#waiting.keys()].find((one) => underWay.every((other) => other.domain !== one))
      const job = domain === undefined ? undefined : this.#waiting.get(domain)?.[0]
      if (domain === undefined || job === undefined) return
      for (const other of job.askers.keys()) this.#dequeue(other, job)
      // Its next turn comes after those of all others that wait.
      const rest = this.#waiting.get(domain)
      this.#waiting.delete(domain)
      if (rest !== undefined) this.#waiting.set(domain, rest)
      const taken = new Set(underWay.map(({ place }) => place))
      let place = 0
      while (taken.has(place)) place++
      job.underWay = { domain, place }
      void this.#work(job, place)
    }
  }

  async #work(job: Job, place: number): Promise<void> {
    try {
      await job.work(place, job.abort.signal)
      job.outcome.resolve()
    } catch (error) {
      job.outcome.reject(error)
    }
    this.#jobs.delete(job.key)
    this.#begin()
  }

  /** Jobs that wait, as the turns of their domains come. */
  #order(): Job[] {
    const ordered = new Set<Job>()
    const lists = [...this.#waiting.values()].map((jobs) => [...jobs])
    while (lists.some((jobs) => jobs.length > 0)) {
      for (const jobs of lists) {
        while (jobs[0] !== undefined && ordered.has(jobs[0])) jobs.shift()
        const next = jobs.shift()
        if (next !== undefined) ordered.add(next)
      }
    }
    return [...ordered]
  }
}

function tooMany(why: string): ServiceError {
  return new ServiceError('rate_limited', `the component cannot be transpiled now: ${why}`)
}
