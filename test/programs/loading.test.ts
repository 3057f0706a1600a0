/** The short way to the files of a start leads to the same files as Node's own. */
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

const ROOT = join(import.meta.dirname, '..', '..')
const run = promisify(execFile)

/** Every file that loading the rooms asks for, with its kind, in the order of the alphabet. */
const LIST = `
  import { registerHooks } from 'node:module'
  const seen = new Map()
  registerHooks({ load: (url, context, next) => { seen.set(url, context.format); return next(url, context) } })
  await import('./programs/start/rooms.ts')
  process.stdout.write([...seen].map(([url, format]) => url + ' ' + format).toSorted().join('\\n'))
  process.exit()`

const listed = async (...flags: string[]) => {
  const args = [...flags, '--input-type=module', '--eval', LIST]
  const { stdout } = await run(process.execPath, args, { cwd: ROOT, maxBuffer: 16 * 1024 * 1024 })
  return stdout.split('\n')
}

test('with the hook and without it the same files are loaded, as modules of the same kinds', async () => {
  const plain = ['--preserve-symlinks', '--preserve-symlinks-main']
  const quick = await listed(...plain, '--import', './programs/loading.ts')
  expect(quick.length).toBeGreaterThan(1000)
  expect(quick).toEqual(await listed(...plain))
})

test('a file that is not there is named', async () => {
  const args = [
    '--import',
    './programs/loading.ts',
    '--input-type=module',
    '--eval',
    `await import('./programs/none.ts')`,
  ]
  await expect(run(process.execPath, args, { cwd: ROOT })).rejects.toThrow(/programs\/none\.ts/)
})
