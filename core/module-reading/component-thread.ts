/** The thread that validates one component and is ended afterwards, so that nothing keeps the memory that it took. */
import { parentPort } from 'node:worker_threads'
import { ModuleRefusal } from '../wasm/index.ts'
import { validateComponent, validationMemoryBytes } from './component-validator.ts'

export type ComponentJob = { bytes: Uint8Array<ArrayBuffer> }
export type ComponentAnswer = { refusal: string | undefined; bytes: Uint8Array<ArrayBuffer> }

parentPort?.on('message', ({ bytes }: ComponentJob) => {
  parentPort?.postMessage({ refusal: refusalOf(bytes), bytes } satisfies ComponentAnswer, [bytes.buffer])
})

function refusalOf(bytes: Uint8Array<ArrayBuffer>): string | undefined {
  try {
    validateComponent(bytes, validationMemoryBytes(bytes.length))
    return undefined
  } catch (error) {
    if (error instanceof ModuleRefusal) return error.message
    throw error
  }
}
