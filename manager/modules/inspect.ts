/** Reads a module that no task has: digest, exports, imports, and whether a task accepts it. */
import { createHash } from 'node:crypto'
import { digestOfHash } from '#core/digest.ts'
import { describeModuleBytes, validateModule } from '#guests/module-reading/index.ts'
import { DEFAULT_MODULE_BOUNDS, ModuleRefusal, readModuleKind } from '#guests/wasm/index.ts'
import type { ModuleDescription, ModuleKind, ModuleRuntime } from '#guests/wasm/index.ts'
import type { ReceivedBody } from './received-body.ts'

export type InspectedFacts = ModuleDescription & {
  digest: string
  sizeBytes: number
  kind: ModuleKind
  /** Undefined when it is refused. */
  runtime: ModuleRuntime | undefined
  /** Why a task refuses it. */
  refusal: string | undefined
}

const HEADER_BYTES = 8

/** Throws `malformed` unless it is WebAssembly that can be read. `owner` is the owner in the queue of the thread. */
export async function inspectModule(body: ReceivedBody, owner: string): Promise<InspectedFacts> {
  const hash = createHash('sha256')
  let head = Buffer.alloc(0)
  for await (const piece of body.pieces()) {
    hash.update(piece)
    if (head.length < HEADER_BYTES) head = Buffer.concat([head, piece.subarray(0, HEADER_BYTES)])
  }
  const kind = readModuleKind(head)
  // The thread detaches the bytes, so each job reads them from the file.
  const description = await describeModuleBytes(kind, await body.read(), owner)
  const { runtime, refusal } = await verdictOf(body, owner)
  return { digest: digestOfHash(hash), sizeBytes: body.sizeBytes, kind, runtime, refusal, ...description }
}

async function verdictOf(body: ReceivedBody, owner: string): Promise<Pick<InspectedFacts, 'runtime' | 'refusal'>> {
  try {
    const { runtime } = await validateModule(await body.read(), owner, DEFAULT_MODULE_BOUNDS.memoryLimitBytes)
    return { runtime, refusal: undefined }
  } catch (error) {
    if (error instanceof ModuleRefusal) return { runtime: undefined, refusal: error.message }
    throw error
  }
}
