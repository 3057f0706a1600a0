/** What is made from something else is committed as it is made now. */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'
import { ROOT } from './source-imports.ts'

const DEADLINE_MS = 180_000

describe('generated files', () => {
  it(
    'are fresh: `npm run generate` would change nothing',
    async () => {
      const run = promisify(execFile)(process.execPath, ['tools/generate.ts', '--check'], {
        cwd: ROOT,
        timeout: DEADLINE_MS,
      })
      const { stdout } = await run.catch((error: { stdout: string; stderr: string }) => {
        throw new Error(`${error.stdout}${error.stderr}`)
      })
      expect(stdout).toMatch(/^\d+ generated files are up to date\n$/)
    },
    DEADLINE_MS,
  )
})
