/** Changes of files, found by looking at them: this also works for folders that are shared with another machine. */
import { stat } from 'node:fs/promises'
import { sleep } from '#core/time.ts'

const LOOK_INTERVAL_MS = 200

/**
 * Yields after each change from now on, as soon as all files are there and have stayed the same for one interval. Ends with
 * the signal.
 */
export async function changesOf(files: readonly string[], signal: AbortSignal): Promise<AsyncGenerator<void>> {
  return changesFrom(await stateOf(files), files, signal)
}

async function* changesFrom(
  first: string | undefined,
  files: readonly string[],
  signal: AbortSignal,
): AsyncGenerator<void> {
  let reported = first
  let seen = first
  while (!signal.aborted) {
    await sleep(LOOK_INTERVAL_MS, signal).catch(() => undefined)
    const now = await stateOf(files)
    // A compiler writes a file in parts, or removes it first.
    const isStill = now === seen && now !== undefined
    seen = now
    if (!isStill || now === reported || signal.aborted) continue
    reported = now
    yield
  }
}

/** Undefined while one of them is missing. */
async function stateOf(files: readonly string[]): Promise<string | undefined> {
  try {
    const states = await Promise.all(files.map((file) => stat(file, { bigint: true })))
    return states.map(({ mtimeNs, size, ino }) => `${mtimeNs} ${size} ${ino}`).join(' ')
  } catch {
    return undefined
  }
}
