/**
 * Runs jobs with hostile input outside of the main thread; what runs one is ended when the job exceeds its time or memory. One job runs
 * at a time. The queue is bounded, and owners are served in rotation, so that no owner waits for all jobs of another.
 */
import type { Transferable } from 'node:worker_threads'
import { ServiceError } from '../errors/index.ts'

export type JobQueueOptions = {
  /** The name of the input in errors: `document`. */
  what: string
  /** The maximum duration of a job; a longer one ends its runner. */
  maxJobMs: number
  /** The maximum number of waiting jobs, of one owner and in total. */
  maxWaitingOfOwner: number
  maxWaiting: number
  /** Starts a new runner for each job, so that its memory is released. */
  isEndedAfterJob?: boolean
}

/** A thread or a process that answers each message with one message. */
export type JobRunner<Job> = {
  post(job: Job, transfer: readonly Transferable[]): void
  /** Whether it keeps this process alive. */
  hold(isHeld: boolean): void
  /** Ends it at once; it reports nothing afterwards. */
  end(): void
}

/** Starts a runner; `fail` reports that it ended by itself: it exceeds its memory, since its input is hostile. */
export type StartRunner<Job, Result> = (report: { result(result: Result): void; fail(): void }) => JobRunner<Job>

export type JobQueue<Job, Result> = {
  /**
   * The runner's result. `transfer` is moved instead of copied. Throws `too_large` for a job that exceeds its time or memory, and
   * `rate_limited` when too many jobs wait.
   */
  run(job: Job, owner: string, transfer?: readonly Transferable[]): Promise<Result>
}

type Waiting<Job, Result> = {
  job: Job
  transfer: readonly Transferable[]
  resolve: (result: Result) => void
  reject: (error: ServiceError) => void
}

/** The runner starts with the first job and is kept; it does not keep the process alive. */
export function createJobQueue<Job, Result>(
  options: JobQueueOptions,
  startRunner: StartRunner<Job, Result>,
): JobQueue<Job, Result> {
  const { what, maxWaitingOfOwner } = options
  const waiting = new Map<string, Waiting<Job, Result>[]>()
  let waitingCount = 0
  let runner: JobRunner<Job> | undefined
  let current: { one: Waiting<Job, Result>; timer: NodeJS.Timeout } | undefined

  /** The next job of the owner at the front; an owner with more jobs moves to the end. */
  function takeWaiting(): Waiting<Job, Result> | undefined {
    for (const [owner, ofOwner] of waiting) {
      const one = ofOwner.shift()
      waiting.delete(owner)
      if (ofOwner.length > 0) waiting.set(owner, ofOwner)
      waitingCount -= 1
      return one
    }
    return undefined
  }

  function next(): void {
    if (current !== undefined) return
    const one = takeWaiting()
    if (one === undefined) {
      runner?.hold(false)
      return
    }
    runner ??= start()
    runner.hold(true)
    const timer = setTimeout(() => end(`the ${what} takes too long to parse; simplify it`), options.maxJobMs)
    current = { one, timer }
    runner.post(one.job, one.transfer)
  }

  function start(): JobRunner<Job> {
    return startRunner({
      result(result) {
        if (options.isEndedAfterJob === true) endRunner()
        finish((one) => one.resolve(result))
      },
      fail: () => end(`the ${what} takes too much memory to parse; simplify it`),
    })
  }

  function endRunner(): void {
    const ended = runner
    runner = undefined
    ended?.end()
  }

  function end(reason: string): void {
    endRunner()
    finish((one) => one.reject(new ServiceError('too_large', reason)))
  }

  function finish(tell: (done: Waiting<Job, Result>) => void): void {
    const done = current
    current = undefined
    if (done !== undefined) {
      clearTimeout(done.timer)
      tell(done.one)
    }
    next()
  }

  return {
    run(job, owner, transfer = []) {
      const ofOwner = waiting.get(owner) ?? []
      if (ofOwner.length >= maxWaitingOfOwner || waitingCount >= options.maxWaiting) {
        const message = `too many ${what}s are being parsed; try again later`
        return Promise.reject(new ServiceError('rate_limited', message, { retryAfterSeconds: 1 }))
      }
      return new Promise((resolve, reject) => {
        ofOwner.push({ job, transfer, resolve, reject })
        waiting.set(owner, ofOwner)
        waitingCount += 1
        next()
      })
    },
  }
}
