/**
 * Modules of strangers, read where they cannot hold up anybody: one of 64 MiB, or one whose hundred thousand names and types take a while, is
 * read in a thread that is ended when it takes too long. Its bytes go there and come back without being copied.
 */
import { entryPoint } from '../installation.ts'
import { createJobThread } from '../job-thread.ts'
import { ModuleRefusal } from '../wasm/index.ts'
import type { DescribedExport, ExaminedModule, ModuleKind } from '../wasm/index.ts'
import type { ComponentAnswer, ComponentJob } from './component-thread.ts'
import type { ModuleAnswer, ModuleJob } from './module-thread.ts'

const thread = createJobThread<ModuleJob, ModuleAnswer>({
  script: entryPoint('core/module-reading/module-thread.ts'),
  what: 'module',
  // The digest of 64 MiB takes a third of a second on a slow machine, reading what is within the bounds less.
  maxJobMs: 10_000,
  // The bytes of a module lie outside of it.
  maxHeapMib: 512,
  // Callers have bounds of their own that are lower.
  maxWaitingOfOwner: 64,
  maxWaiting: 256,
})

/** Beside it: this one is ended after each component. */
const componentThread = createJobThread<ComponentJob, ComponentAnswer>({
  script: entryPoint('core/module-reading/component-thread.ts'),
  what: 'component',
  // One of 12 MB takes 0.6 s on a slow machine.
  maxJobMs: 20_000,
  maxHeapMib: 256,
  maxWaitingOfOwner: 64,
  maxWaiting: 256,
  isEndedAfterJob: true,
})

export type JudgedModule = ExaminedModule & {
  /** `sha256:` and 64 hexadecimal digits. */
  digest: string
  /** Those that were given, which cannot be used any more. */
  bytes: Uint8Array<ArrayBuffer>
}

/**
 * `examineModule`, whether an engine would take it, and the digest. The bytes must have a buffer of their own: it is taken away. Throws as that does, `too_large` for a module
 * that takes too long to read, `rate_limited` when too many wait. `owner` is who it is read for.
 */
export async function judgeModule(given: Uint8Array<ArrayBuffer>, owner: string): Promise<JudgedModule> {
  const answer = await ask({ wanted: 'verdict', bytes: given }, owner)
  if (!('examined' in answer)) throw new Error('the thread that reads modules answered something else')
  const { examined, digest } = answer
  const bytes = examined.kind === 'component' ? await validated(answer.bytes, owner) : answer.bytes
  return { ...examined, digest, bytes }
}

/** The bytes of a component that is valid. */
async function validated(bytes: Uint8Array<ArrayBuffer>, owner: string): Promise<Uint8Array<ArrayBuffer>> {
  const answer = await componentThread.run({ bytes }, owner, [bytes.buffer])
  if (answer.refusal !== undefined) throw new ModuleRefusal(answer.refusal)
  return answer.bytes
}

/** What a module of any features exports. The bytes must have a buffer of their own: it is taken away. Throws as `judgeModule` does. */
export async function describeExports(
  kind: ModuleKind,
  bytes: Uint8Array<ArrayBuffer>,
  owner: string,
): Promise<DescribedExport[]> {
  const answer = await ask({ wanted: 'exports', kind, bytes }, owner)
  if (!('exports' in answer)) throw new Error('the thread that reads modules answered something else')
  return answer.exports
}

async function ask(job: ModuleJob, owner: string): Promise<Exclude<ModuleAnswer, { refusal: string }>> {
  const answer = await thread.run(job, owner, [job.bytes.buffer])
  if ('refusal' in answer) throw new ModuleRefusal(answer.refusal)
  return answer
}
