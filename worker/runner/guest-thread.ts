/**
 * A warm thread of a runner process. It makes one call at a time, each in an instance of its own. A queued run can be
 * recalled until it begins; the shared slots decide this race.
 */
import { threadCpuUsage } from 'node:process'
import { parentPort, workerData } from 'node:worker_threads'
import type { MessagePort } from 'node:worker_threads'
import { monotonicMs } from '#core/time.ts'
import { LoadedComponent, callFunction, recordGuestFrames } from '#guests/calls/index.ts'
import type { CompiledModule } from '#guests/calls/index.ts'
import { countDeferrals, loadComponent } from '../runtime/component.ts'
import { GuestThreadHost } from './guest-thread-host.ts'
import type { Replies } from './guest-thread-host.ts'
import { SLOT } from './messages.ts'
import type { FromGuestThread, RunOrder, ToGuestThread } from './messages.ts'
import { withOutputOnce } from './output-once.ts'

/** Ended instances look small to the garbage collector; beyond this much guest memory a collection is forced. */
const COLLECT_AFTER_BYTES = 32 * 1024 * 1024

declare const gc: (() => void) | undefined

/** The data of a new thread. */
export type GuestThreadData = { slots: Int32Array; replies: Replies }

/**
 * Transpiled components query the environment of the process several times per host call, to find out whether they are
 * debugged. This takes half of the time of a host call, and none where there is no `process`.
 */
function hideProcess(): void {
  Object.defineProperty(globalThis, 'process', { value: undefined })
}

function serveThread(port: MessagePort, { slots, replies }: GuestThreadData): void {
  recordGuestFrames()
  hideProcess()
  countDeferrals()
  const modules = new Map<string, CompiledModule | LoadedComponent>()
  let uncollectedBytes = 0

  const run = (slot: number, order: RunOrder) => {
    if (Atomics.compareExchange(slots, slot, SLOT.queued, SLOT.begun) !== SLOT.queued) {
      Atomics.store(slots, slot, SLOT.free)
      return
    }
    const module = modules.get(order.moduleKey)
    if (module === undefined) throw new Error('a run arrived before its module')
    const startedMs = monotonicMs()
    const usedBefore = threadCpuUsage()
    const host = new GuestThreadHost(order.sequence, port, replies)
    const { outcome, memoryBytes, stateEntries } =
      module instanceof LoadedComponent ? module.call(order.call, host) : callFunction(module, order.call, host)
    const durationMs = monotonicMs() - startedMs
    const { user, system } = threadCpuUsage(usedBefore)
    const cpuMs = (user + system) / 1000
    Atomics.store(slots, slot, SLOT.free)
    const isStreamed = host.finish()
    const ended = {
      slot,
      sequence: order.sequence,
      ...withOutputOnce(outcome),
      durationMs,
      cpuMs,
      memoryBytes,
      isStreamed,
      ...(stateEntries === undefined ? {} : { stateEntries }),
    }
    port.postMessage({ type: 'ended', ...ended } satisfies FromGuestThread)
    uncollectedBytes += memoryBytes
    if (uncollectedBytes <= COLLECT_AFTER_BYTES) return
    uncollectedBytes = 0
    gc?.()
  }

  port.on('message', (message: ToGuestThread) => {
    switch (message.type) {
      case 'module':
        modules.set(
          message.moduleKey,
          message.compiled.kind === 'component' ? loadComponent(message.compiled) : message.compiled,
        )
        break
      case 'drop_module':
        modules.delete(message.moduleKey)
        break
      case 'runs':
        for (const { slot, order } of message.runs) run(slot, order)
        break
    }
  })
}

if (parentPort !== null) serveThread(parentPort, workerData as GuestThreadData)
