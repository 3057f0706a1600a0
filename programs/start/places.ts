/** The places where the processes of one machine find each other. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Lifecycle } from '#core/program/index.ts'

/** This machine, as its own processes reach it. */
export const HERE = '127.0.0.1:0'

/** Makes the folder in which the processes of the platform pass on what their supervisor answers. Only our user can open it. */
export async function startPrivateFolder(life: Lifecycle): Promise<{ socketPath: string }> {
  return await life.start('private folder', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'skein-'))
    const stop = () => rm(folder, { recursive: true, force: true })
    return { value: { socketPath: join(folder, 'requests') }, stop }
  })
}
