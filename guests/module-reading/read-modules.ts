/**
 * Parses untrusted modules in a thread: a module of 64 MiB, or one with a hundred thousand names and types, takes a while, and the
 * thread is terminated when it takes too long. The bytes are moved there and back without copies.
 */
import { BoundedCache } from '#core/bounded-cache.ts'
import { digestOf } from '#core/digest.ts'
import { entryPoint } from '#core/installation.ts'
import { createJobQueue, jobThread } from '#core/jobs/index.ts'
import { ModuleRefusal } from '../wasm/index.ts'
import type { ExaminedModule, ModuleDescription, ModuleKind } from '../wasm/index.ts'
import type { ComponentValidationResult, ComponentValidationRequest } from './component-thread.ts'
import type { ModuleResult, ModuleJob } from './module-thread.ts'

/** The bytes of a module are outside of the heap, and what is kept of them is bounded (`guests/wasm/bounds.ts`): it never comes near. */
const MAX_MODULE_HEAP_MIB = 512
/** A thread that reads a component never comes near this limit either. The tools that validate have a limited memory of their own. */
const MAX_COMPONENT_HEAP_MIB = 256

const thread = createJobQueue<ModuleJob, ModuleResult>(
  {
    what: 'module',
    // The digest of 64 MiB takes a third of a second on a slow machine; parsing within the bounds takes less.
    maxJobMs: 10_000,
    // Callers have lower limits of their own.
    maxWaitingOfOwner: 64,
    maxWaiting: 256,
  },
  jobThread(entryPoint('guests/module-reading/module-thread.ts'), MAX_MODULE_HEAP_MIB),
)

/** A separate thread, because it is terminated after each component. */
const componentThread = createJobQueue<ComponentValidationRequest, ComponentValidationResult>(
  {
    what: 'component',
    // A component of 12 MB takes 0.6 s on a slow machine.
    maxJobMs: 20_000,
    maxWaitingOfOwner: 64,
    maxWaiting: 256,
    isEndedAfterJob: true,
  },
  jobThread(entryPoint('guests/module-reading/component-thread.ts'), MAX_COMPONENT_HEAP_MIB),
)

/** Modules up to this size are recognized by their digest, which takes a fraction of a millisecond. */
const MAX_KNOWN_BYTES = 256 * 1024
/** Characters of the descriptions of accepted modules. */
const MAX_KNOWN_CHARS = 8 * 1024 * 1024
/** The characters that are counted for the rest of a module, besides its exports and imports. */
const KNOWN_CHARS = 512

/** Modules that were accepted, by digest. One is accepted again with the same memory limit or a higher one: nothing else matters. */
const accepted = new BoundedCache<string, { examined: ExaminedModule; memoryLimitBytes: number }>({
  maxSize: MAX_KNOWN_CHARS,
  sizeOf: ({ examined: { exports, imports } }) => KNOWN_CHARS + JSON.stringify([exports, imports]).length,
})

export type ValidatedModule = ExaminedModule & {
  /** `sha256:` and 64 hexadecimal digits. */
  digest: string
  /** The given bytes; the original array may be detached. */
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
  const digest = given.byteLength <= MAX_KNOWN_BYTES ? digestOf(given) : undefined
  const known = digest === undefined ? undefined : accepted.get(digest)
  if (digest === undefined || known === undefined || memoryLimitBytes < known.memoryLimitBytes) {
    const validated = await validate(given, owner, memoryLimitBytes)
    if (digest !== undefined) {
      const { bytes: _bytes, digest: _digest, ...examined } = validated
      accepted.set(digest, { examined, memoryLimitBytes })
    }
    return validated
  }
  return { ...known.examined, digest, bytes: given }
}

async function validate(
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
