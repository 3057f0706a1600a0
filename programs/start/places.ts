/** Where the processes of one machine find each other. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Lifecycle } from '#core/program/index.ts'

/** This machine, as its own processes reach it. */
export const HERE = '127.0.0.1:0'

/** Where the processes of the platform pass on what their supervisor answers: a folder that only our user can open. */
export async function startPrivateFolder(life: Lifecycle): Promise<{ socketPath: string }> {
  return await life.start('private folder', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'skein-'))
    const stop = () => rm(folder, { recursive: true, force: true })
    return { value: { socketPath: join(folder, 'requests') }, stop }
  })
}
