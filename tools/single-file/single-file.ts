/**
 * Makes a program one file for one platform: the script stub.sh, and behind it a compressed archive of Node, of the program as
 * one bundle and of all that it reads at run time (decision 0121). `dist/` must be built. The same sources give the same bytes.
 */
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { chmodSync, cpSync, mkdirSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { bundleScripts } from '../bundle.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const DIST = join(ROOT, 'dist')

export type Program = {
  name: string
  /** The script that it starts. */
  entry: string
  /** Sources by the name of their script (`entryPoint`). */
  scripts: Readonly<Record<string, string>>
  /** Files and folders of `dist/` that it reads at run time. */
  reads: readonly string[]
  /** It is unpacked below its data folder where there is no home. */
  hasDataFolder: boolean
  /** One line for the package. */
  summary: string
  /** Files of `deploy/systemd/` that it installs as a service. */
  units: readonly string[]
  /** Files of the repository that its package installs besides, by path. */
  installs: Readonly<Record<string, string>>
}

const MAX_ARCHIVE_BYTES = 1024 * 1024 * 1024
const COMMON_READS = ['build.json', 'package.json', 'LICENSES.txt']
const PLACE = { place: 'programs/place.ts' }

export const PROGRAMS: readonly Program[] = [
  {
    name: 'skein-worker',
    entry: 'worker',
    scripts: { worker: 'programs/worker.ts', ...PLACE },
    reads: [...COMMON_READS, 'staged'],
    hasDataFolder: true,
    summary: 'worker of Skein, which runs WebAssembly modules for a task manager',
    units: ['skein-worker.service', 'skein.sysusers.conf', 'guard-upgrade.sh'],
    installs: {},
  },
  {
    name: 'skein',
    entry: 'skein',
    scripts: {
      skein: 'cli/main.ts',
      try: 'programs/try.ts',
      'module-thread': 'guests/module-reading/module-thread.ts',
      'component-thread': 'guests/module-reading/component-thread.ts',
      ...PLACE,
    },
    reads: [...COMMON_READS, 'staged', 'packages/@bytecodealliance'],
    hasDataFolder: false,
    summary: 'command line of Skein, a messaging platform and task manager',
    units: [],
    installs: { 'docs/skein.1': 'usr/share/man/man1/skein.1' },
  },
]

export const PLATFORMS = ['linux-x64', 'linux-arm64'] as const
export type Platform = (typeof PLATFORMS)[number]

/** The bundle and its files in `folder`, without Node, for every platform. */
export async function bundleProgram(program: Program, folder: string, releaseKey: string | undefined): Promise<void> {
  await bundleScripts(program.scripts, folder)
  for (const path of program.reads) cpSync(join(DIST, path), join(folder, path), { recursive: true })
  for (const unit of program.units) cpSync(join(ROOT, 'deploy/systemd', unit), join(folder, 'systemd', unit))
  writeFileSync(join(folder, 'single-file.json'), `${JSON.stringify({ program: program.name })}\n`)
  if (releaseKey !== undefined) writeFileSync(join(folder, 'release-key.pem'), releaseKey)
}

export type Contents = { version: string; builtAt: string; bundle: string; node: string; staging: string }

/** Stages the unpacked files: `run`, `node`, its license, and `app/`. */
export function stageProgram(program: Program, { bundle, node, staging }: Contents): void {
  mkdirSync(staging, { recursive: true })
  cpSync(join(node, 'bin', 'node'), join(staging, 'node'))
  chmodSync(join(staging, 'node'), 0o755)
  cpSync(join(node, 'LICENSE'), join(staging, 'LICENSE.node'))
  cpSync(join(ROOT, 'LICENSE'), join(staging, 'LICENSE'))
  cpSync(bundle, join(staging, 'app'), { recursive: true })
  const run = fill(readFileSync(join(import.meta.dirname, 'run.sh'), 'utf8'), {
    program: program.name,
    entry: program.entry,
  })
  writeFileSync(join(staging, 'run'), run, { mode: 0o755 })
  chmodSync(join(staging, 'run'), 0o755)
}

/** Writes the single file of what is staged. */
export function writeSingleFile(program: Program, platform: Platform, contents: Contents, file: string): void {
  const { version, builtAt, staging } = contents
  const options = [
    '--sort=name',
    '--owner=0',
    '--group=0',
    '--numeric-owner',
    '--mode=u=rwX,go=rX',
    `--mtime=${builtAt}`,
  ]
  const archive = execFileSync('tar', [...options, '-cf', '-', '-C', staging, ...readdirSync(staging).toSorted()], {
    maxBuffer: MAX_ARCHIVE_BYTES,
  })
  // Nine is 1 % smaller and takes three times as long.
  const payload = gzipSync(archive, { level: 6 })
  const sha256 = createHash('sha256').update(payload).digest('hex')
  const stub = readFileSync(join(import.meta.dirname, 'stub.sh'), 'utf8')
  const values = (offset: number) => ({
    program: program.name,
    version,
    id: `${version}-${sha256.slice(0, 12)}`,
    platform,
    payload_sha256: sha256,
    payload_offset: fixedWidth(offset),
    file_bytes: fixedWidth(offset + payload.length),
    unpacked_mib: String(Math.ceil(archive.length / 1024 / 1024)),
    fallback: program.hasDataFolder ? 'data' : '',
  })
  const offset = Buffer.byteLength(fill(stub, values(0)))
  writeFileSync(file, Buffer.concat([Buffer.from(fill(stub, values(offset))), payload]), { mode: 0o755 })
  chmodSync(file, 0o755)
}

/** Pads a value, so that the script is as long with the numbers as without. It uses spaces, because a shell reads a leading zero as octal. */
const fixedWidth = (value: number) => String(value).padStart(10)

function fill(text: string, values: Readonly<Record<string, string>>): string {
  return text.replaceAll(/@([a-z_0-9]+)@/g, (whole, name: string) => values[name] ?? whole)
}

/** Bytes of all files below a folder. */
export function bytesBelow(folder: string): number {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .reduce((sum, entry) => sum + statSync(join(entry.parentPath, entry.name)).size, 0)
}
