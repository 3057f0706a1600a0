/** The thread that reads modules: one at a time; whoever waits for one ends the thread when it takes too long. */
import { parentPort } from 'node:worker_threads'
import { digestOf } from '../digest.ts'
import {
  ModuleRefusal,
  describeComponent,
  describeModule,
  examineModule,
  readComponent,
  readModule,
} from '../wasm/index.ts'
import type { DescribedExport, ExaminedModule, ModuleKind } from '../wasm/index.ts'

export type ModuleJob =
  | { wanted: 'verdict'; bytes: Uint8Array<ArrayBuffer> }
  | { wanted: 'exports'; kind: ModuleKind; bytes: Uint8Array<ArrayBuffer> }

export type ModuleAnswer =
  | { refusal: string }
  | { digest: string; examined: ExaminedModule; bytes: Uint8Array<ArrayBuffer> }
  | { exports: DescribedExport[] }

parentPort?.on('message', (job: ModuleJob) => {
  const answer = answerOf(job)
  parentPort?.postMessage(answer, 'bytes' in answer ? [answer.bytes.buffer] : [])
})

function answerOf(job: ModuleJob): ModuleAnswer {
  const { bytes } = job
  try {
    if (job.wanted === 'verdict') {
      const examined = examineModule(bytes)
      if (examined.kind === 'component' && !examined.exports.some((exported) => exported.kind === 'function')) {
        throw new ModuleRefusal('the component exports no function that could be called')
      }
      if (examined.kind === 'core' && !WebAssembly.validate(bytes))
        throw new ModuleRefusal('the module is not valid: no engine takes the code of its functions')
      return { digest: digestOf(bytes), examined, bytes }
    }
    // What workers refuse is shown as well.
    if (job.kind === 'component') return { exports: describeComponent(readComponent(bytes)).exports }
    return { exports: describeModule(readModule(bytes, { allowGc: true })).exports }
  } catch (error) {
    if (error instanceof ModuleRefusal) return { refusal: error.message }
    throw error
  }
}
