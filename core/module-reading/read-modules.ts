/**
 * Modules of strangers, read where they cannot hold up anybody: one of 64 MiB, or one whose hundred thousand names and types take a while, is
 * read in a thread that is ended when it takes too long. Its bytes go there and come back without being copied.
 */
import { entryPoint } from '../installation.ts'
import { createJobThread } from '../job-thread.ts'
import { ModuleRefusal } from '../wasm/index.ts'
import type { DescribedExport, ExaminedModule, ModuleKind } from '../wasm/index.ts'
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

export type JudgedModule = ExaminedModule & {
  /** `sha256:` and 64 hexadecimal digits. */
  digest: string
  /** Those that were given, which cannot be used any more. */
  bytes: Uint8Array<ArrayBuffer>
}

/**
 * `examineModule`, and the digest. The bytes must have a buffer of their own: it is taken away. Throws as that does, `too_large` for a module
 * that takes too long to read, `rate_limited` when too many wait. `owner` is who it is read for.
 */
export async function judgeModule(bytes: Uint8Array<ArrayBuffer>, owner: string): Promise<JudgedModule> {
  const answer = await ask({ wanted: 'verdict', bytes }, owner)
  if (!('examined' in answer)) throw new Error('the thread that reads modules answered something else')
  return { ...answer.examined, digest: answer.digest, bytes: answer.bytes }
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
