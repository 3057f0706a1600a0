/** A worker that was killed while it started a runner may leave a process of bubblewrap that waits for ever; its next start ends it. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { endLeftOvers } from '#worker/isolation/index.ts'

/** A process with the argument that names the code of an isolated process. */
async function processOf(folder: string) {
  const child = spawn(
    process.execPath,
    [
      '-e',
      "console.log('started'); setInterval(() => {}, 1000)",
      '--',
      `--allow-fs-read=${folder}/runner/0123456789abcdef/*`,
    ],
    { stdio: ['ignore', 'pipe', 'ignore'] },
  )
  await once(child.stdout, 'data')
  return child
}

test('only processes that were isolated below the folder are ended', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'skein-left-'))
  const [left, ofAnother] = await Promise.all([processOf(folder), processOf(`${folder}-of-another`)])
  try {
    const ended = once(left, 'exit')
    expect(endLeftOvers(folder)).toBe(1)
    expect(await ended).toEqual([null, 'SIGKILL'])
    expect(endLeftOvers(folder)).toBe(0)
    expect(ofAnother.exitCode ?? ofAnother.signalCode).toBeNull()
  } finally {
    for (const child of [left, ofAnother]) child.kill('SIGKILL')
    rmSync(folder, { recursive: true, force: true })
  }
})
