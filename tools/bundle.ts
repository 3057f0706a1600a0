/** Bundles programs, with every program and thread that they start, as scripts of one folder. */
import { readFile, readdir } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { build } from 'rolldown'
import type { RolldownOutput } from 'rolldown'
import { HOME } from '#core/installation.ts'

/** The programs by the name of their script. */
const PROGRAMS: Readonly<Record<string, string>> = {
  all: 'programs/all.ts',
  api: 'programs/api.ts',
  manager: 'programs/manager.ts',
  worker: 'programs/worker.ts',
  proxy: 'programs/proxy.ts',
  backup: 'programs/backup.ts',
  restore: 'programs/restore.ts',
  skein: 'cli/main.ts',
}
const ENTRY_POINT = /\bentryPoint\('([^']+)'\)/g
/** Optional, and loaded by `pg` only on request. */
const EXTERNAL = ['pg-native']

/** Writes the scripts of all programs to the folder. */
export async function bundle(folder: string): Promise<RolldownOutput['output']> {
  return await bundleScripts({ ...PROGRAMS, ...(await namedEntryPoints()) }, folder)
}

/** Writes these scripts, each with its source by its name, to the folder. */
export async function bundleScripts(
  scripts: Readonly<Record<string, string>>,
  folder: string,
): Promise<RolldownOutput['output']> {
  const { output } = await build({
    cwd: HOME,
    input: { ...scripts },
    platform: 'node',
    external: EXTERNAL,
    logLevel: 'warn',
    output: { dir: folder, format: 'esm', entryFileNames: '[name].js', chunkFileNames: '[name]-[hash].js' },
  })
  return output
}

/** Files that are started as a program or thread, by their name in a build (`entryPoint`). */
async function namedEntryPoints(): Promise<Record<string, string>> {
  const paths = new Set<string>()
  for (const room of await rooms()) {
    for (const path of await readdir(join(HOME, room), { recursive: true })) {
      if (!path.endsWith('.ts') || path.endsWith('.test.ts')) continue
      for (const [, named = ''] of (await readFile(join(HOME, room, path), 'utf8')).matchAll(ENTRY_POINT))
        paths.add(named)
    }
  }
  const entries = [...paths].map((path): [string, string] => [basename(path, '.ts'), path])
  for (const [script, path] of entries) {
    const others = [...Object.entries(PROGRAMS), ...entries].filter(
      ([other, from]) => other === script && from !== path,
    )
    if (others.length > 0) throw new Error(`${path} and ${others[0]?.[1]} would both be the script ${script}.js`)
  }
  return Object.fromEntries(entries)
}

/** Folders whose files can contain an entry point. */
async function rooms(): Promise<string[]> {
  const { imports } = JSON.parse(await readFile(join(HOME, 'package.json'), 'utf8')) as {
    imports: Record<string, string>
  }
  return [...Object.values(imports).map((path) => path.split('/')[1] ?? ''), 'programs']
}
