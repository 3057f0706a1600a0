/**
 * Documents of profiles, read where they cannot hold up anybody. The readers of YAML and TOML take seconds for texts that were made to take them,
 * so that a text of any length goes to a thread that is ended when it takes too long or too much memory. Texts go there and come back, because a
 * copied value would cost this thread as much as reading it.
 */
import { Worker } from 'node:worker_threads'
import { ServiceError } from '#core/errors/index.ts'
import { parseJsonBody } from '#core/http/index.ts'
import type { DocumentJob } from './document-thread.ts'
import { MAX_CONVERTED_CHARS, convertDocument } from './notations.ts'
import type { Converted, Notation } from './notations.ts'

export type { Notation } from './notations.ts'

/** A text below this takes milliseconds, whatever it says. */
const MAX_DIRECT_CHARS = 2048
/** A text above is refused before it is read. */
const MAX_TEXT_CHARS = 1024 * 1024
/** A document may take this long. */
const MAX_READ_MS = 2000
/** The heap of the thread. */
const MAX_HEAP_MIB = 256
/** Of one owner, and of all; beyond, callers are told to come back. */
const MAX_WAITING_OF_OWNER = 8
const MAX_WAITING = 64

type Waiting = { job: DocumentJob; resolve: (text: string) => void; reject: (error: ServiceError) => void }

/** Waiting documents by owner. Owners have their turn one after the other, so that nobody waits for all of another's. */
const waiting = new Map<string, Waiting[]>()
let waitingCount = 0
let thread: Worker | undefined
let current: { one: Waiting; timer: NodeJS.Timeout } | undefined

/** Throws `malformed` for a text that cannot be read, `too_large` for one that takes too long, `rate_limited` when too many wait. `owner` is the domain that it is read for. */
export async function checkDocument(notation: Notation, text: string, owner: string): Promise<void> {
  await convert({ wanted: 'check', notation, text }, owner)
}

/** What the text holds, as JSON would have brought it: fit to be stored. Throws as `checkDocument` does. */
export async function readDocument(notation: Notation, text: string, owner: string): Promise<unknown> {
  return parseJsonBody(Buffer.from(await convert({ wanted: 'json', notation, text }, owner)))
}

/** The text written anew. Throws as `checkDocument` does, and `unprocessable` for what the notation cannot say. */
export async function rewriteDocument(notation: Notation, text: string, owner: string): Promise<string> {
  return await convert({ wanted: 'rewrite', notation, text }, owner)
}

async function convert(job: DocumentJob, owner: string): Promise<string> {
  const { wanted, notation, text } = job
  if (text.length > MAX_TEXT_CHARS)
    throw new ServiceError('too_large', `the document must have at most ${MAX_TEXT_CHARS} characters`)
  if (text.length > MAX_DIRECT_CHARS) return await waitForThread(job, owner)
  return textOf(await convertDocument(wanted, notation, text), notation)
}

function waitForThread(job: DocumentJob, owner: string): Promise<string> {
  const ofOwner = waiting.get(owner) ?? []
  if (ofOwner.length >= MAX_WAITING_OF_OWNER || waitingCount >= MAX_WAITING) {
    const message = 'too many documents are being read: try again later'
    return Promise.reject(new ServiceError('rate_limited', message, { retryAfterSeconds: 1 }))
  }
  return new Promise((resolve, reject) => {
    ofOwner.push({ job, resolve, reject })
    waiting.set(owner, ofOwner)
    waitingCount += 1
    readNext()
  })
}

/** The owner that waits longest; with more to read it goes to the end of the row. */
function takeWaiting(): Waiting | undefined {
  for (const [owner, ofOwner] of waiting) {
    const one = ofOwner.shift()
    waiting.delete(owner)
    if (ofOwner.length > 0) waiting.set(owner, ofOwner)
    waitingCount -= 1
    return one
  }
  return undefined
}

function readNext(): void {
  if (current !== undefined) return
  const one = takeWaiting()
  if (one === undefined) {
    thread?.unref()
    return
  }
  thread ??= startThread()
  thread.ref()
  const timer = setTimeout(() => endThread('takes too long to read: write it in a simpler way'), MAX_READ_MS)
  current = { one, timer }
  thread.postMessage(one.job)
}

function startThread(): Worker {
  const started = new Worker(new URL('./document-thread.ts', import.meta.url), {
    env: {},
    execArgv: [],
    resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MIB },
  })
  started.on('message', (answer: Converted) => {
    finish(({ one }) => {
      try {
        one.resolve(textOf(answer, one.job.notation))
      } catch (error) {
        one.reject(error as ServiceError)
      }
    })
  })
  // Beyond its memory the thread ends by itself; what it was given is no honest document.
  started.on('error', () => {
    if (thread === started) endThread('takes too much memory to read: write it in a simpler way')
  })
  return started
}

function endThread(reason: string): void {
  const ended = thread
  thread = undefined
  // A thread that ends has nothing to say any more.
  ended?.removeAllListeners('message')
  void ended?.terminate()
  finish(({ one }) => one.reject(new ServiceError('too_large', `the document ${reason}`)))
}

function finish(tell: (done: NonNullable<typeof current>) => void): void {
  const done = current
  current = undefined
  if (done !== undefined) {
    clearTimeout(done.timer)
    tell(done)
  }
  readNext()
}

function textOf(converted: Converted, notation: Notation): string {
  if ('text' in converted) return converted.text
  const name = notation.toUpperCase()
  switch (converted.fault) {
    case 'unreadable':
      throw new ServiceError('malformed', `the body is no ${name}`)
    case 'unwritable':
      throw new ServiceError('unprocessable', `the document cannot be written as ${name}`)
    case 'too_long':
      throw new ServiceError('too_large', `the document must hold at most ${MAX_CONVERTED_CHARS} characters`)
  }
}
