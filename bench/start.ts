/** Time to the banner on an empty and on an existing data folder, and memory after the start. */
import { memoryMiB, newDataDir, removeDataDir, startPlatform } from './platform.ts'
import { median, milliseconds, printTable } from './statistics.ts'

const REPEATS = 5
const TARGET_EXISTING_MS = 1500
const TARGET_EMPTY_MS = 5000
const TARGET_MIB = 400

export async function benchStart(): Promise<void> {
  const empty: number[] = []
  const existing: number[] = []
  const memory: number[] = []
  // One start is not counted: it fills the compile cache, as the first start after an installation does.
  // The folders are removed at the end: ext4 does not use what was deleted within five seconds, and searches longer for each new file.
  const folders: string[] = []
  try {
    for (let round = 0; round <= REPEATS; round++) {
      const dataDir = newDataDir()
      folders.push(dataDir)
      for (const kind of [empty, existing]) {
        await using platform = await startPlatform(dataDir)
        if (round === 0) continue
        kind.push(platform.readyMs)
        if (kind === existing) memory.push(memoryMiB(platform.pid))
      }
    }
  } finally {
    for (const folder of folders) removeDataDir(folder)
  }
  printTable('Start of everything', [
    {
      name: 'ready on an empty data folder',
      figure: milliseconds(median(empty)),
      target: milliseconds(TARGET_EMPTY_MS),
      isReached: median(empty) < TARGET_EMPTY_MS,
    },
    {
      name: 'ready on an existing data folder',
      figure: milliseconds(median(existing)),
      target: milliseconds(TARGET_EXISTING_MS),
      isReached: median(existing) < TARGET_EXISTING_MS,
    },
    {
      name: 'memory, all processes',
      figure: `${Math.round(median(memory))} MiB`,
      target: `${TARGET_MIB} MiB`,
      isReached: median(memory) < TARGET_MIB,
    },
  ])
}
