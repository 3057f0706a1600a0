/**
 * Runs jobs with hostile input in a thread that is terminated when a job exceeds its time or memory. One job runs at a time. The
 * queue is bounded, and owners are served in rotation, so that no owner waits for all jobs of another.
 */
import { Worker } from 'node:worker_threads'
import type { Transferable } from 'node:worker_threads'
import { ServiceError } from './errors/index.ts'

export type JobThreadOptions = {
  /** The thread's script; it answers each message with one message. */
  script: URL
  /** The name of the input in errors: `document`. */
  what: string
  /** The maximum duration of a job; a longer one terminates the thread. */
  maxJobMs: number
  /** The heap of the thread. */
  maxHeapMib: number
  /** The maximum number of waiting jobs, of one owner and in total. */
  maxWaitingOfOwner: number
  maxWaiting: number
  /** Starts a new thread for each job, so that its memory is released. */
  isEndedAfterJob?: boolean
}

export type JobThread<Job, Result> = {
  /**
   * The thread's result. `transfer` is moved instead of copied. Throws `too_large` for a job that exceeds its time or memory, and
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

/** The thread starts with the first job and is kept; it does not keep the process alive. */
export function createJobThread<Job, Result>(options: JobThreadOptions): JobThread<Job, Result> {
  const { what, maxWaitingOfOwner } = options
  const waiting = new Map<string, Waiting<Job, Result>[]>()
  let waitingCount = 0
  let thread: Worker | undefined
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
      thread?.unref()
      return
    }
    thread ??= start()
    thread.ref()
    const timer = setTimeout(() => end(`the ${what} takes too long to parse; simplify it`), options.maxJobMs)
    current = { one, timer }
    thread.postMessage(one.job, one.transfer)
  }

  function start(): Worker {
    const started = new Worker(options.script, {
      env: {},
      execArgv: [],
      resourceLimits: { maxOldGenerationSizeMb: options.maxHeapMib },
    })
    started.on('message', (result: Result) => {
      if (options.isEndedAfterJob === true) terminate()
      finish((one) => one.resolve(result))
    })
    // The thread ends when it exceeds its memory: the input is hostile.
    started.on('error', () => {
      if (thread === started) end(`the ${what} takes too much memory to parse; simplify it`)
    })
    return started
  }

  function terminate(): void {
    const ended = thread
    thread = undefined
    // Messages of a thread that is ending are ignored.
    ended?.removeAllListeners('message')
    void ended?.terminate()
  }

  function end(reason: string): void {
    terminate()
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
