/** The health check of the containers, as a container engine runs it. */
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'

const SCRIPT = join(import.meta.dirname, '../../deploy/health.mjs')

/** `healthy`, or the line that says why not. */
export async function health(...args: string[]): Promise<string> {
  return await promisify(execFile)(process.execPath, [SCRIPT, ...args]).then(
    () => 'healthy',
    (error: { stderr: string }) => error.stderr.trim(),
  )
}
