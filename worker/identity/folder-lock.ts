/** One worker per data folder: two would speak under one id and void each other's sessions for ever. */
import { join } from 'node:path'
import { lockFolder } from '#core/folder-lock.ts'
import type { FolderLock } from '#core/folder-lock.ts'

/** Throws `invalid_state` naming the process that holds it. */
export async function lockWorkerFolder(folder: string): Promise<FolderLock> {
  return await lockFolder({
    path: join(folder, 'worker'),
    folder: `the folder ${folder}`,
    holder: 'another worker',
    advice: 'stop that one, or set SKEIN_WORKER_DATA_DIR to another folder',
  })
}
