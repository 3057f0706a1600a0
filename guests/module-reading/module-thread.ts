/** The thread that parses modules, one at a time; the caller terminates it when it takes too long. */
import { parentPort } from 'node:worker_threads'
import { digestOf } from '#core/digest.ts'
import {
  DEFAULT_MODULE_BOUNDS,
  ModuleRefusal,
  describeComponent,
  describeModule,
  examineModule,
  ownMemories,
  readComponent,
  readModule,
} from '../wasm/index.ts'
import { withMemoryMaximum } from './memory-maximum.ts'
import type { ExaminedModule, ModuleDescription, ModuleKind } from '../wasm/index.ts'

export type ModuleJob =
  | { wanted: 'verdict'; bytes: Uint8Array<ArrayBuffer>; memoryLimitBytes: number }
  | { wanted: 'description'; kind: ModuleKind; bytes: Uint8Array<ArrayBuffer> }

export type ModuleResult =
  | { refusal: string }
  | { digest: string; examined: ExaminedModule; bytes: Uint8Array<ArrayBuffer> }
  | { description: ModuleDescription }

parentPort?.on('message', (job: ModuleJob) => {
  const answer = answerOf(job)
  parentPort?.postMessage(answer, 'bytes' in answer ? [answer.bytes.buffer] : [])
})

/** A 64-bit memory can have a maximum above that of the engine; workers lower it to the memory limit. */
function isValidWithinLimit(bytes: Uint8Array<ArrayBuffer>): boolean {
  const layout = readModule(bytes, { allowGc: true })
  const [memory, ...more] = ownMemories(layout)
  if (memory?.max === undefined || !memory.is64 || more.length > 0 || memory.max <= MAX_PAGES) return false
  return WebAssembly.validate(withMemoryMaximum(layout, MAX_PAGES))
}

/** 4 GiB, the largest memory limit. */
const MAX_PAGES = 65_536

function answerOf(job: ModuleJob): ModuleResult {
  const { bytes } = job
  try {
    if (job.wanted === 'verdict') {
      const examined = examineModule(bytes, { ...DEFAULT_MODULE_BOUNDS, memoryLimitBytes: job.memoryLimitBytes })
      if (examined.kind === 'component' && !examined.exports.some((exported) => exported.kind === 'function')) {
        throw new ModuleRefusal('the component exports no function')
      }
      if (examined.kind === 'core' && !WebAssembly.validate(bytes) && !isValidWithinLimit(bytes))
        throw new ModuleRefusal('invalid module: its functions have invalid code')
      return { digest: digestOf(bytes), examined, bytes }
    }
    // Modules that workers refuse are described too.
    if (job.kind === 'component') return { description: describeComponent(readComponent(bytes)) }
    return { description: describeModule(readModule(bytes, { allowGc: true })) }
  } catch (error) {
    if (error instanceof ModuleRefusal) return { refusal: error.message }
    throw error
  }
}
