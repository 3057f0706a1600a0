/**
 * Backup and restore of the ten million records of `reader`: the backup while the platform runs, the restore into an empty folder.
 * `BENCH_DATA_DIR` and `BENCH_RECORDS` as there. The ratios are to the rate at which the records were published.
 */
import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { newDataDir, removeDataDir, startPlatform } from './platform.ts'
import { RECORDS, fill } from './reader.ts'
import { printTable } from './statistics.ts'

const ROOT = join(import.meta.dirname, '..')
const BYTES_PER_MIB = 1024 * 1024
const run = promisify(execFile)

/** Seconds that the program took. */
async function timed(program: 'backup' | 'restore', args: readonly string[], dataDir: string): Promise<number> {
  const began = performance.now()
  await run(process.execPath, [`programs/${program}.ts`, ...args], {
    cwd: ROOT,
    env: { ...process.env, SKEIN_DATA_DIR: dataDir },
  })
  return (performance.now() - began) / 1000
}

export async function benchBackup(): Promise<void> {
  const kept = process.env['BENCH_DATA_DIR']
  const dataDir = kept ?? newDataDir()
  const restored = newDataDir()
  const folder = mkdtempSync(join(tmpdir(), 'skein-bench-'))
  const [file, key] = [join(folder, 'backup.tar'), join(folder, 'secret.key')]
  try {
    const { perSecond, backupSeconds } = await (async () => {
      await using platform = await startPlatform(dataDir)
      const filled = await fill(platform)
      return { perSecond: filled.perSecond, backupSeconds: await timed('backup', [file, '--with-key', key], dataDir) }
    })()
    const { size } = statSync(file)
    const restoreSeconds = await timed('restore', [file, '--key', key], restored)
    await using again = await startPlatform(restored)
    const rate = (seconds: number) =>
      `${seconds.toFixed(1)} s, ${Math.round(RECORDS / seconds).toLocaleString('en')} records/s, ${(size / seconds / BYTES_PER_MIB).toFixed(1)} MiB/s of the file`
    const ratio = (seconds: number) => `${(RECORDS / seconds / perSecond).toFixed(1)} x publishing`
    printTable(`Backup of ${RECORDS.toLocaleString('en')} records`, [
      { name: 'backup while the platform runs', figure: rate(backupSeconds), ratio: ratio(backupSeconds) },
      { name: 'restore into an empty folder', figure: rate(restoreSeconds), ratio: ratio(restoreSeconds) },
      { name: 'start on what was restored', figure: `${Math.round(again.readyMs)} ms` },
      {
        name: 'size of the file',
        figure: `${(size / BYTES_PER_MIB).toFixed(1)} MiB, ${(size / RECORDS).toFixed(1)} bytes a record`,
      },
    ])
  } finally {
    rmSync(folder, { recursive: true, force: true })
    removeDataDir(restored)
    if (kept === undefined) removeDataDir(dataDir)
  }
}
