/** Files of the system, complete on disk or as they were. */
import { open, rename } from 'node:fs/promises'
import { dirname } from 'node:path'

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
  await syncFolder(dirname(path))
}

export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r')
  try {
    await folder.sync()
  } finally {
    await folder.close()
  }
}
