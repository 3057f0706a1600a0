/** The thread that validates one component and is then terminated to release its memory. */
import { parentPort } from 'node:worker_threads'
import { ModuleRefusal } from '../wasm/index.ts'
import { validateComponent, validationMemoryBytes } from './component-validator.ts'

export type ComponentValidationRequest = { bytes: Uint8Array<ArrayBuffer> }
/** `refusal` is undefined for a valid component. `bytes` returns the transferred buffer to the sender. */
export type ComponentValidationResult = { refusal: string | undefined; bytes: Uint8Array<ArrayBuffer> }

parentPort?.on('message', ({ bytes }: ComponentValidationRequest) => {
  parentPort?.postMessage({ refusal: refusalOf(bytes), bytes } satisfies ComponentValidationResult, [bytes.buffer])
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
