/** `npm run build`, once before a run whose tests start what it makes. */
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'

const ROOT = join(import.meta.dirname, '..', '..')

/** Called by vitest. */
export async function setup(): Promise<void> {
  await promisify(execFile)(process.execPath, ['tools/build.ts'], { cwd: ROOT })
}
