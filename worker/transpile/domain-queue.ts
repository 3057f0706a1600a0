/**
 * A fair queue over domains: one job of each domain runs before the second of any of them, and no domain has two running
 * jobs. A job is identified by its key; concurrent callers with the same key share it.
 */
import { ServiceError } from '#core/errors/index.ts'

export type DomainQueueLimits = {
  /** Running jobs, each of another domain. */
  maxUnderWay: number
  /** Queued jobs per domain. */
  maxWaiting: number
  /** Longest time in the queue. */
  waitDeadlineMs: number
}

/** The signal aborts when the last caller leaves. */
export type Piece = (signal: AbortSignal) => Promise<void>

type Job = {
  key: string
  work: Piece
  /** Number of callers per domain. */
  waiters: Map<string, number>
  abort: AbortController
  outcome: PromiseWithResolvers<void>
  /** The domain for which it runs. Undefined: queued. */
  runningDomain: string | undefined
}

export class DomainQueue {
  readonly #limits: DomainQueueLimits
  readonly #jobs = new Map<string, Job>()
  /** Queued jobs per domain; the next domain comes first. */
  readonly #waiting = new Map<string, Job[]>()

  constructor(limits: DomainQueueLimits) {
    this.#limits = limits
  }

  /**
   * Resolves when the job is done. Rejects with its error, with the reason of the signal, and with `rate_limited` if too
   * many jobs of the domain are queued or this one waited for too long.
   */
  async run(domain: string, key: string, work: Piece, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted()
    for (let left = this.#jobs.get(key); left?.abort.signal.aborted === true; left = this.#jobs.get(key)) {
      // It is being aborted after its last caller left: a new caller starts a new job.
      await left.outcome.promise.catch(() => undefined)
    }
    const job = this.#join(domain, key, work)
    const gone = Promise.withResolvers<never>()
    const onAbort = () => gone.reject(signal.reason)
    signal.addEventListener('abort', onAbort, { once: true })
    const { waitDeadlineMs } = this.#limits
    const deadline = setTimeout(() => {
      if (job.runningDomain === undefined) gone.reject(tooMany(`it has waited for ${waitDeadlineMs / 1000} s`))
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

  /** 0: running; else the number of jobs up to this one, in the order of their starts. Undefined: no such job. */
  positionOf(key: string): number | undefined {
    const job = this.#jobs.get(key)
    if (job === undefined) return undefined
    return job.runningDomain === undefined ? this.#order().indexOf(job) + 1 : 0
  }

  /** Resolves when no job is running; queued jobs are refused by the signals of their callers. */
  async settled(): Promise<void> {
    await Promise.allSettled([...this.#jobs.values()].map(({ outcome }) => outcome.promise))
  }

  #join(domain: string, key: string, work: Piece): Job {
    const found = this.#jobs.get(key)
    const job: Job = found ?? {
      key,
      work,
      waiters: new Map(),
      abort: new AbortController(),
      outcome: Promise.withResolvers<void>(),
      runningDomain: undefined,
    }
    const asked = job.waiters.get(domain) ?? 0
    if (asked === 0 && job.runningDomain === undefined) {
      const waiting = this.#waiting.get(domain) ?? []
      const { maxWaiting } = this.#limits
      if (waiting.length >= maxWaiting) throw tooMany(`${maxWaiting} components of the domain are queued already`)
      waiting.push(job)
      this.#waiting.set(domain, waiting)
    }
    if (found === undefined) {
      this.#jobs.set(key, job)
      // Its callers get the error; after the last of them has left, it is unhandled.
      job.outcome.promise.catch(() => undefined)
    }
    job.waiters.set(domain, asked + 1)
    return job
  }

  #leave(domain: string, job: Job): void {
    const asked = (job.waiters.get(domain) ?? 0) - 1
    if (asked > 0) return void job.waiters.set(domain, asked)
    job.waiters.delete(domain)
    this.#dequeue(domain, job)
    if (job.waiters.size > 0) return
    if (job.runningDomain === undefined) {
      this.#jobs.delete(job.key)
      job.outcome.resolve()
    } else job.abort.abort(new ServiceError('unavailable', 'all callers have left'))
  }

  #dequeue(domain: string, job: Job): void {
    const waiting = this.#waiting.get(domain)?.filter((one) => one !== job) ?? []
    if (waiting.length === 0) this.#waiting.delete(domain)
    else this.#waiting.set(domain, waiting)
  }

  /** Starts jobs while places are free, each of a domain without a running job. */
  #begin(): void {
    for (;;) {
      const running = [...this.#jobs.values()].flatMap((job) => job.runningDomain ?? [])
      if (running.length >= this.#limits.maxUnderWay) return
      const domain = [...this.#waiting.keys()].find((one) => !running.includes(one))
      const job = domain === undefined ? undefined : this.#waiting.get(domain)?.[0]
      if (domain === undefined || job === undefined) return
      for (const other of job.waiters.keys()) this.#dequeue(other, job)
      // Its next turn comes after those of all other queued domains.
      const rest = this.#waiting.get(domain)
      this.#waiting.delete(domain)
      if (rest !== undefined) this.#waiting.set(domain, rest)
      job.runningDomain = domain
      void this.#work(job)
    }
  }

  async #work(job: Job): Promise<void> {
    try {
      await job.work(job.abort.signal)
      job.outcome.resolve()
    } catch (error) {
      job.outcome.reject(error)
    }
    this.#jobs.delete(job.key)
    this.#begin()
  }

  /** Queued jobs in the order of their turns. */
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
