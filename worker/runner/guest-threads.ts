/** The threads of one runner, managed by its main thread: starts and ends them, assigns and recalls runs. */
import { MessageChannel, Worker } from 'node:worker_threads'
import type { MessagePort } from 'node:worker_threads'
import type { CompiledModule } from '#guests/calls/index.ts'
import type { CompiledComponent } from '../runtime/component.ts'
import type { GuestThreadData } from './guest-thread.ts'
import type { ReplyMessage } from './guest-thread-host.ts'
import { THREAD_QUEUE_RUNS, SLOT } from './messages.ts'
import type { FromGuestThread, FromRunner, RunOrder, ToGuestThread } from './messages.ts'

/** Heap of the engine per thread; without the memory of guests. */
const MAX_THREAD_HEAP_MIB = 48
const THREAD_STACK_MIB = 4

type GuestThread = {
  worker: Worker
  slots: Int32Array
  /** Port for answers to the active guest; the thread waits until the number changes and then reads. */
  replies: MessagePort
  arrived: Int32Array
  /** Sequence of the run in each slot that is neither begun nor recalled, as far as known. */
  held: (number | undefined)[]
  /** Keys of the modules that the thread has loaded. */
  modules: Set<string>
  /** Runs for the thread with the next `flush`, in one message. */
  unsent: { slot: number; order: RunOrder }[]
}

export class GuestThreads {
  readonly #threads = new Map<number, GuestThread>()
  readonly #send: (message: FromRunner) => void

  constructor(send: (message: FromRunner) => void) {
    this.#send = send
  }

  open(index: number): void {
    const slots = new Int32Array(new SharedArrayBuffer(THREAD_QUEUE_RUNS * Int32Array.BYTES_PER_ELEMENT))
    const arrived = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT))
    const { port1: replies, port2 } = new MessageChannel()
    const worker = new Worker(new URL('./guest-thread.ts', import.meta.url), {
      workerData: { slots, replies: { port: port2, arrived } } satisfies GuestThreadData,
      transferList: [port2],
      env: {},
      stdin: false,
      // Nothing reads these streams. Without these options, output of a guest would mix with the frames on standard output.
      stdout: true,
      stderr: true,
      resourceLimits: {
        maxOldGenerationSizeMb: MAX_THREAD_HEAP_MIB,
        maxYoungGenerationSizeMb: 8,
        stackSizeMb: THREAD_STACK_MIB,
      },
    })
    const held = Array.from({ length: THREAD_QUEUE_RUNS }, () => undefined)
    const thread: GuestThread = { worker, slots, replies, arrived, held, modules: new Set(), unsent: [] }
    this.#threads.set(index, thread)
    let failure = 'the thread ended'
    worker.on('online', () => this.#send({ type: 'thread_ready', thread: index }))
    worker.on('message', (message: FromGuestThread) => {
      if (message.type !== 'ended') return this.#send({ ...message, thread: index })
      const { slot, ...ended } = message
      thread.held[slot] = undefined
      this.#send({ ...ended, thread: index })
    })
    worker.on('error', (error) => {
      failure = error instanceof Error ? error.message : String(error)
    })
    worker.on('exit', () => {
      if (this.#threads.get(index) !== thread) return
      this.#send({ type: 'thread_lost', thread: index, error: failure })
      this.open(index)
    })
  }

  run(index: number, order: RunOrder, compiled: CompiledModule | CompiledComponent): void {
    const thread = this.#get(index)
    if (!thread.modules.has(order.moduleKey)) {
      thread.modules.add(order.moduleKey)
      post(thread, { type: 'module', moduleKey: order.moduleKey, compiled })
    }
    const slot = thread.held.findIndex((held, at) => held === undefined && Atomics.load(thread.slots, at) === SLOT.free)
    if (slot === -1) return this.#send({ type: 'recalled', thread: index, sequences: [order.sequence] })
    thread.held[slot] = order.sequence
    Atomics.store(thread.slots, slot, SLOT.queued)
    thread.unsent.push({ slot, order })
  }

  /** Sends the runs of this turn of the event loop. */
  flush(): void {
    for (const thread of this.#threads.values()) flushRuns(thread)
  }

  /** Recalls runs; one that the thread has begun stays. */
  recall(index: number): void {
    const thread = this.#get(index)
    const sequences: number[] = []
    for (const [slot, sequence] of thread.held.entries()) {
      if (sequence === undefined) continue
      if (Atomics.compareExchange(thread.slots, slot, SLOT.queued, SLOT.recalled) !== SLOT.queued) continue
      thread.held[slot] = undefined
      sequences.push(sequence)
    }
    this.#send({ type: 'recalled', thread: index, sequences })
  }

  /** The new thread starts after the old one has exited: a guest that cannot be ended must not leave two of them. */
  async kill(index: number): Promise<void> {
    const thread = this.#get(index)
    this.#threads.delete(index)
    await thread.worker.terminate()
    this.#send({ type: 'thread_ended', thread: index })
    this.open(index)
  }

  /** The reply is ignored if the run or its thread has ended. */
  reply(index: number, message: ReplyMessage): void {
    const thread = this.#threads.get(index)
    if (thread === undefined) return
    thread.replies.postMessage(message)
    Atomics.add(thread.arrived, 0, 1)
    Atomics.notify(thread.arrived, 0)
  }

  dropModule(moduleKey: string): void {
    for (const thread of this.#threads.values()) {
      if (thread.modules.delete(moduleKey)) post(thread, { type: 'drop_module', moduleKey })
    }
  }

  #get(index: number): GuestThread {
    const thread = this.#threads.get(index)
    if (thread === undefined) throw new Error(`thread ${index} is not open`)
    return thread
  }
}

/** Sends the message in order: a dropped module is still available to earlier runs. */
function post(thread: GuestThread, message: ToGuestThread): void {
  flushRuns(thread)
  thread.worker.postMessage(message)
}

function flushRuns(thread: GuestThread): void {
  if (thread.unsent.length === 0) return
  const runs = thread.unsent
  thread.unsent = []
  thread.worker.postMessage({ type: 'runs', runs } satisfies ToGuestThread)
}
