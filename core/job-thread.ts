/**
 * Work that hostile input can make long, in a thread that is ended when a piece of it takes too long or too much memory. One job at a time: what
 * waits is bounded, and owners have their turn one after the other, so that nobody waits for all of another's.
 */
import { Worker } from 'node:worker_threads'
import type { Transferable } from 'node:worker_threads'
import { ServiceError } from './errors/index.ts'

export type JobThreadOptions = {
  /** Answers each message with one message. */
  script: URL
  /** What it reads, as a refusal names it: `document`. */
  what: string
  /** A job that takes longer ends the thread. */
  maxJobMs: number
  /** The heap of the thread. */
  maxHeapMib: number
  /** Jobs that wait, of one owner and of all. */
  maxWaitingOfOwner: number
  maxWaiting: number
  /** Each job has a thread of its own, so that nothing keeps the memory of the one before. */
  isEndedAfterJob?: boolean
}

export type JobThread<Job, Answer> = {
  /**
   * What the thread answers. `transfer` is moved there instead of being copied. Throws `too_large` for a job that takes too long or too much
   * memory, `rate_limited` when too many wait.
   */
  run(job: Job, owner: string, transfer?: readonly Transferable[]): Promise<Answer>
}

type Waiting<Job, Answer> = {
  job: Job
  transfer: readonly Transferable[]
  resolve: (answer: Answer) => void
  reject: (error: ServiceError) => void
}

/** The thread starts with the first job and stays; it keeps no process from ending. */
export function createJobThread<Job, Answer>(options: JobThreadOptions): JobThread<Job, Answer> {
  const { what, maxWaitingOfOwner } = options
  const waiting = new Map<string, Waiting<Job, Answer>[]>()
  let waitingCount = 0
  let thread: Worker | undefined
  let current: { one: Waiting<Job, Answer>; timer: NodeJS.Timeout } | undefined

  /** Of the owner that waits longest; with more to do it goes to the end of the row. */
  function takeWaiting(): Waiting<Job, Answer> | undefined {
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
    const timer = setTimeout(
      () => end(`the ${what} takes too long to read: write it in a simpler way`),
      options.maxJobMs,
    )
    current = { one, timer }
    thread.postMessage(one.job, one.transfer)
  }

  function start(): Worker {
    const started = new Worker(options.script, {
      env: {},
      execArgv: [],
      resourceLimits: { maxOldGenerationSizeMb: options.maxHeapMib },
    })
    started.on('message', (answer: Answer) => {
      if (options.isEndedAfterJob === true) forget()
      finish((one) => one.resolve(answer))
    })
    // Beyond its memory the thread ends by itself; what it was given is nothing honest.
    started.on('error', () => {
      if (thread === started) end(`the ${what} takes too much memory to read: write it in a simpler way`)
    })
    return started
  }

  function forget(): void {
    const ended = thread
    thread = undefined
    // A thread that ends has nothing to say any more.
    ended?.removeAllListeners('message')
    void ended?.terminate()
  }

  function end(reason: string): void {
    forget()
    finish((one) => one.reject(new ServiceError('too_large', reason)))
  }

  function finish(tell: (done: Waiting<Job, Answer>) => void): void {
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
        const message = `too many ${what}s are being read: try again later`
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
