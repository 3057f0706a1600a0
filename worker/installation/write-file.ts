/** Files of the system, complete on disk or as they were. */
import { open, rename } from 'node:fs/promises'
import { dirname } from 'node:path'
import { syncPath } from '#core/sync-folder.ts'

export async function writeWhole(path: string, content: string, mode: number): Promise<void> {
  const draft = `${path}.new`
  const file = await open(draft, 'w', mode)
  try {
    await file.chmod(mode)
    await file.writeFile(content)
    await file.sync()
  } finally {
    await file.close()
  }
  await rename(draft, path)
  await syncPath(dirname(path))
}
