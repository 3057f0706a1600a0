/**
 * Parses untrusted modules in a thread: a module of 64 MiB, or one with a hundred thousand names and types, takes a while, and the
 * thread is terminated when it takes too long. The bytes are moved there and back without copies.
 */
import { entryPoint } from '../installation.ts'
import { createJobThread } from '../job-thread.ts'
import { ModuleRefusal } from '../wasm/index.ts'
import type { ExaminedModule, ModuleDescription, ModuleKind } from '../wasm/index.ts'
import type { ComponentValidationResult, ComponentValidationRequest } from './component-thread.ts'
import type { ModuleResult, ModuleJob } from './module-thread.ts'

const thread = createJobThread<ModuleJob, ModuleResult>({
  script: entryPoint('core/module-reading/module-thread.ts'),
  what: 'module',
  // The digest of 64 MiB takes a third of a second on a slow machine; parsing within the bounds takes less.
  maxJobMs: 10_000,
  // The bytes of a module are outside of the heap.
  maxHeapMib: 512,
  // Callers have lower limits of their own.
  maxWaitingOfOwner: 64,
  maxWaiting: 256,
})

/** A separate thread, because it is terminated after each component. */
const componentThread = createJobThread<ComponentValidationRequest, ComponentValidationResult>({
  script: entryPoint('core/module-reading/component-thread.ts'),
  what: 'component',
  // A component of 12 MB takes 0.6 s on a slow machine.
  maxJobMs: 20_000,
  maxHeapMib: 256,
  maxWaitingOfOwner: 64,
  maxWaiting: 256,
  isEndedAfterJob: true,
})

export type ValidatedModule = ExaminedModule & {
  /** `sha256:` and 64 hexadecimal digits. */
  digest: string
  /** The given bytes; the original array is detached. */
  bytes: Uint8Array<ArrayBuffer>
}

/**
 * `examineModule`, validation by the engine, and the digest. The bytes must own their buffer, which is detached. Throws the errors
 * of `examineModule`, `too_large` for a module that takes too long, and `rate_limited` when too many wait. `owner` is the owner in
 * the queue, `memoryLimitBytes` the limit for the initial memory.
 */
export async function validateModule(
  given: Uint8Array<ArrayBuffer>,
  owner: string,
  memoryLimitBytes: number,
): Promise<ValidatedModule> {
  const answer = await ask({ wanted: 'verdict', bytes: given, memoryLimitBytes }, owner)
  if (!('examined' in answer)) throw new Error('the thread that reads modules answered something else')
  const { examined, digest } = answer
  const bytes = examined.kind === 'component' ? await validated(answer.bytes, owner) : answer.bytes
  return { ...examined, digest, bytes }
}

/** The bytes of a validated component. */
async function validated(bytes: Uint8Array<ArrayBuffer>, owner: string): Promise<Uint8Array<ArrayBuffer>> {
  const answer = await componentThread.run({ bytes }, owner, [bytes.buffer])
  if (answer.refusal !== undefined) throw new ModuleRefusal(answer.refusal)
  return answer.bytes
}

/** The exports and imports of a module with any features, whether workers accept it or not. The bytes must own their buffer, which is detached. Throws like `validateModule`. */
export async function describeModuleBytes(
  kind: ModuleKind,
  bytes: Uint8Array<ArrayBuffer>,
  owner: string,
): Promise<ModuleDescription> {
  const answer = await ask({ wanted: 'description', kind, bytes }, owner)
  if (!('description' in answer)) throw new Error('the thread that reads modules answered something else')
  return answer.description
}

async function ask(job: ModuleJob, owner: string): Promise<Exclude<ModuleResult, { refusal: string }>> {
  const answer = await thread.run(job, owner, [job.bytes.buffer])
  if ('refusal' in answer) throw new ModuleRefusal(answer.refusal)
  return answer
}
