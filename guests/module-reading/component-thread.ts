/**
 * The thread that validates one component, transpiles it without its code to find out whether a worker can, and is then terminated to
 * release its memory.
 */
import { parentPort } from 'node:worker_threads'
import { checkScript } from '../scripts/index.ts'
import { sentenceOf, transpileWith } from '../transpiled/index.ts'
import { ModuleRefusal } from '../wasm/index.ts'
import { validateComponent, validationMemoryBytes } from './component-validator.ts'
import { loadTranspiler } from './load-transpiler.ts'

export type ComponentValidationRequest = { bytes: Uint8Array<ArrayBuffer> }
/** `refusal` is undefined for a valid component. `bytes` returns the transferred buffer to the sender. */
export type ComponentValidationResult = { refusal: string | undefined; bytes: Uint8Array<ArrayBuffer> }

parentPort?.on('message', ({ bytes }: ComponentValidationRequest) => {
  void refusalOf(bytes).then((refusal) =>
    parentPort?.postMessage({ refusal, bytes } satisfies ComponentValidationResult, [bytes.buffer]),
  )
})

async function refusalOf(bytes: Uint8Array<ArrayBuffer>): Promise<string | undefined> {
  try {
    validateComponent(bytes, validationMemoryBytes(bytes.length))
  } catch (error) {
    if (error instanceof ModuleRefusal) return error.message
    throw error
  }
  const generate = await loadTranspiler()
  try {
    checkScript(transpileWith(generate, bytes, { isHollow: true }).script)
    return undefined
  } catch (error) {
    return `the component cannot be transpiled: ${sentenceOf(error)}`
  }
}
