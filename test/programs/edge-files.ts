// Single files for tests: of the built worker with the real Node, and small ones whose Node is a script that starts that of the tests.
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PROGRAMS, bundleProgram, stageProgram, writeSingleFile } from '../../tools/single-file/single-file.ts'
import type { Program } from '../../tools/single-file/single-file.ts'
import { ROOT } from './deployment-files.ts'

export const WORKER = PROGRAMS.find(({ name }) => name === 'skein-worker') as Program
const BUILT_AT = '2026-01-01T00:00:00Z'

export type EdgeFiles = {
  folder: string
  /** A file of the worker with the Node that is shipped. */
  whole(): string
  /** A file of the worker that needs the Node of the tests. `change` edits what it contains. */
  small(version: string, change?: (app: string) => void): string
}

export async function createEdgeFiles(releaseKey?: string): Promise<EdgeFiles> {
  const folder = mkdtempSync(join(tmpdir(), 'skein-edge-'))
  chmodSync(folder, 0o755)
  const bundle = join(folder, 'bundle')
  await bundleProgram(WORKER, bundle, releaseKey)
  const fakeNode = join(folder, 'node')
  mkdirSync(join(fakeNode, 'bin'), { recursive: true })
  writeFileSync(join(fakeNode, 'bin/node'), `#!/bin/sh\nexec ${process.execPath} "$@"\n`, { mode: 0o755 })
  writeFileSync(join(fakeNode, 'LICENSE'), 'that of Node\n')
  let count = 0
  const write = (version: string, node: string, change: (app: string) => void = () => undefined): string => {
    const staging = join(folder, `staged-${(count += 1)}`)
    const contents = { version, builtAt: BUILT_AT, bundle, node, staging }
    stageProgram(WORKER, contents)
    const app = join(staging, 'app')
    const about = JSON.parse(readFileSync(join(app, 'package.json'), 'utf8')) as object
    writeFileSync(join(app, 'package.json'), JSON.stringify({ ...about, version }))
    change(app)
    const file = join(folder, `file-${count}`, 'skein-worker-linux-x64')
    mkdirSync(join(folder, `file-${count}`))
    writeSingleFile(WORKER, 'linux-x64', contents, file)
    return file
  }
  return {
    folder,
    whole: () => write('0.1.0', join(ROOT, 'node_modules', `node-linux-${process.arch}`)),
    small: (version, change) => write(version, fakeNode, change),
  }
}

export function copyOf(file: string, name: string): string {
  const target = `${file}.${name}`
  cpSync(file, target)
  chmodSync(target, 0o755)
  return target
}
