/** One worker per data folder: two would speak under one id and void each other's sessions for ever. */
import { readFileSync } from 'node:fs'
import { open, readFile, rm } from 'node:fs/promises'
import { ServiceError } from '#core/errors/index.ts'

export type FolderLock = { release: () => Promise<void> }

/** Throws `invalid_state` naming the process that holds it. What a killed process left is taken over. */
export async function lockFolder(path: string): Promise<FolderLock> {
  for (;;) {
    try {
      const file = await open(path, 'wx', 0o600)
      await file.writeFile(`${process.pid} ${startOf(process.pid)}\n`)
      await file.close()
      return { release: () => rm(path, { force: true }) }
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    }
    const [pid = '', start] = (await readFile(path, 'utf8').catch(() => '')).trim().split(' ')
    if (pid !== '' && Number(pid) !== process.pid && startOf(Number(pid)) === start && isRunning(Number(pid))) {
      throw new ServiceError(
        'invalid_state',
        `another worker (process ${pid}) uses this folder; set SKEIN_WORKER_DATA_DIR to another one`,
      )
    }
    await rm(path, { force: true })
  }
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}

/** When a process began, in the kernel's ticks: a number that was given to another process differs in it. */
function startOf(pid: number): string {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? '0'
  } catch {
    return '0'
  }
}
