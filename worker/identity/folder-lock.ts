/** One worker per data folder: two would use one id and void each other's sessions forever. */
import { join } from 'node:path'
import { lockFolder } from '#core/folder-lock.ts'
import type { FolderLock } from '#core/folder-lock.ts'

/** Throws `invalid_state` with the process that holds the lock. */
export async function lockWorkerFolder(folder: string): Promise<FolderLock> {
  return await lockFolder({
    path: join(folder, 'worker'),
    folder: `the folder ${folder}`,
    holder: 'another worker',
    advice: 'stop that worker, or set SKEIN_WORKER_DATA_DIR to another folder',
  })
}
