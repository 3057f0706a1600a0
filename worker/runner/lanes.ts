/** The lanes of one runner, seen from its main thread: starts and ends threads, hands runs over, takes them back. */
import { MessageChannel, Worker } from 'node:worker_threads'
import type { MessagePort } from 'node:worker_threads'
import type { CompiledComponent } from '../runtime/component.ts'
import type { CompiledModule } from '../runtime/core-module.ts'
import type { LaneData } from './lane.ts'
import type { ReplyMessage } from './lane-host.ts'
import { LANE_DEPTH, SLOT } from './messages.ts'
import type { FromLane, FromRunner, RunOrder, ToLane } from './messages.ts'

/** Heap of the engine itself per lane; a guest's memory is not in it. */
const MAX_LANE_HEAP_MIB = 48
const LANE_STACK_MIB = 4

type Lane = {
  thread: Worker
  slots: Int32Array
  /** Where answers for the guest under way go; the lane waits for the number to change and then looks. */
  replies: MessagePort
  arrived: Int32Array
  /** Sequence of the run in each slot that has not been begun or taken back as far as we know. */
  held: (number | undefined)[]
  /** Keys of the modules that the thread has got. */
  modules: Set<string>
  /** Runs that go to the thread with the next `flush`, in one message. */
  unsent: { slot: number; order: RunOrder }[]
}

export class Lanes {
  readonly #lanes = new Map<number, Lane>()
  readonly #send: (message: FromRunner) => void

  constructor(send: (message: FromRunner) => void) {
    this.#send = send
  }

  open(index: number): void {
    const slots = new Int32Array(new SharedArrayBuffer(LANE_DEPTH * Int32Array.BYTES_PER_ELEMENT))
    const arrived = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT))
    const { port1: replies, port2 } = new MessageChannel()
    const thread = new Worker(new URL('./lane.ts', import.meta.url), {
      workerData: { slots, replies: { port: port2, arrived } } satisfies LaneData,
      transferList: [port2],
      env: {},
      stdin: false,
      // Nobody reads them. Else what a thread writes would stand between the frames on the standard output.
      stdout: true,
      stderr: true,
      resourceLimits: {
        maxOldGenerationSizeMb: MAX_LANE_HEAP_MIB,
        maxYoungGenerationSizeMb: 8,
        stackSizeMb: LANE_STACK_MIB,
      },
    })
    const held = Array.from({ length: LANE_DEPTH }, () => undefined)
    const lane: Lane = { thread, slots, replies, arrived, held, modules: new Set(), unsent: [] }
    this.#lanes.set(index, lane)
    let failure = 'the thread ended'
    thread.on('online', () => this.#send({ type: 'lane_ready', lane: index }))
    thread.on('message', (message: FromLane) => {
      if (message.type !== 'ended') return this.#send({ ...message, lane: index })
      const { slot, ...ended } = message
      lane.held[slot] = undefined
      this.#send({ ...ended, lane: index })
    })
    thread.on('error', (error) => {
      failure = error instanceof Error ? error.message : String(error)
    })
    thread.on('exit', () => {
      if (this.#lanes.get(index) !== lane) return
      this.#send({ type: 'lane_lost', lane: index, error: failure })
      this.open(index)
    })
  }

  run(index: number, order: RunOrder, compiled: CompiledModule | CompiledComponent): void {
    const lane = this.#get(index)
    if (!lane.modules.has(order.moduleKey)) {
      lane.modules.add(order.moduleKey)
      post(lane, { type: 'module', moduleKey: order.moduleKey, compiled })
    }
    const slot = lane.held.findIndex((held, at) => held === undefined && Atomics.load(lane.slots, at) === SLOT.free)
    if (slot === -1) return this.#send({ type: 'recalled', lane: index, sequences: [order.sequence] })
    lane.held[slot] = order.sequence
    Atomics.store(lane.slots, slot, SLOT.queued)
    lane.unsent.push({ slot, order })
  }

  /** Hands over the runs of this turn of the event loop. */
  flush(): void {
    for (const lane of this.#lanes.values()) flushRuns(lane)
  }

  /** A run that the thread has begun stays where it is. */
  recall(index: number): void {
    const lane = this.#get(index)
    const sequences: number[] = []
    for (const [slot, sequence] of lane.held.entries()) {
      if (sequence === undefined) continue
      if (Atomics.compareExchange(lane.slots, slot, SLOT.queued, SLOT.recalled) !== SLOT.queued) continue
      lane.held[slot] = undefined
      sequences.push(sequence)
    }
    this.#send({ type: 'recalled', lane: index, sequences })
  }

  /** The new thread starts when the old one is gone: a guest that cannot be ended must not leave two of them. */
  async kill(index: number): Promise<void> {
    const lane = this.#get(index)
    this.#lanes.delete(index)
    await lane.thread.terminate()
    this.#send({ type: 'lane_killed', lane: index })
    this.open(index)
  }

  /** Of no use when the run or its thread is gone. */
  reply(index: number, message: ReplyMessage): void {
    const lane = this.#lanes.get(index)
    if (lane === undefined) return
    lane.replies.postMessage(message)
    Atomics.add(lane.arrived, 0, 1)
    Atomics.notify(lane.arrived, 0)
  }

  dropModule(moduleKey: string): void {
    for (const lane of this.#lanes.values()) {
      if (lane.modules.delete(moduleKey)) post(lane, { type: 'drop_module', moduleKey })
    }
  }

  #get(index: number): Lane {
    const lane = this.#lanes.get(index)
    if (lane === undefined) throw new Error(`lane ${index} is not open`)
    return lane
  }
}

/** In order: a module that is dropped is still there for the runs before. */
function post(lane: Lane, message: ToLane): void {
  flushRuns(lane)
  lane.thread.postMessage(message)
}

function flushRuns(lane: Lane): void {
  if (lane.unsent.length === 0) return
  const runs = lane.unsent
  lane.unsent = []
  lane.thread.postMessage({ type: 'runs', runs } satisfies ToLane)
}
