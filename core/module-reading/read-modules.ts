/**
 * Modules of strangers, read where they cannot hold up anybody: one of 64 MiB, or one whose hundred thousand names and types take a while, is
 * read in a thread that is ended when it takes too long. Its bytes go there and come back without being copied.
 */
import { createJobThread } from '../job-thread.ts'
import { ModuleRefusal } from '../wasm/index.ts'
import type { DescribedExport, ExaminedModule, ModuleKind } from '../wasm/index.ts'
import type { ModuleAnswer, ModuleJob } from './module-thread.ts'

/** The digest of 64 MiB takes a third of a second on a slow machine, reading what is within the bounds less. */
const MAX_READ_MS = 10_000
/** The heap of the thread; the bytes of a module lie outside of it. */
const MAX_HEAP_MIB = 512
/** Of one owner, and of all; who asks has bounds of its own that are lower. */
const MAX_WAITING_OF_OWNER = 64
const MAX_WAITING = 256

const thread = createJobThread<ModuleJob, ModuleAnswer>({
  script: new URL('./module-thread.ts', import.meta.url),
  what: 'module',
  maxJobMs: MAX_READ_MS,
  maxHeapMib: MAX_HEAP_MIB,
  maxWaitingOfOwner: MAX_WAITING_OF_OWNER,
  maxWaiting: MAX_WAITING,
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
