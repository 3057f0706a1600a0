/** Which build this is: from `build.json` of an image, else from the checkout itself. */
import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import type { BuildInfo } from './http/index.ts'

const ROOT = join(import.meta.dirname, '..')

function read(path: string): string | undefined {
  try {
    return readFileSync(join(ROOT, path), 'utf8').trim()
  } catch {
    return undefined
  }
}

function commitOfCheckout(): string {
  const head = read('.git/HEAD')
  if (head === undefined) return 'unknown'
  const reference = /^ref: (\S+)$/.exec(head)?.[1]
  if (reference === undefined) return head
  return read(`.git/${reference}`) ?? packedCommit(reference) ?? 'unknown'
}

/** Git keeps references that have not moved for a while in one file. */
function packedCommit(reference: string): string | undefined {
  const lines = read('.git/packed-refs')?.split('\n') ?? []
  return lines.find((line) => line.endsWith(` ${reference}`))?.split(' ', 1)[0]
}

export function readBuildInfo(): BuildInfo {
  const { version } = JSON.parse(read('package.json') ?? '{}') as { version?: string }
  const built = JSON.parse(read('build.json') ?? '{}') as { commit?: string; build_time?: string }
  return {
    version: version ?? 'unknown',
    commit: built.commit ?? commitOfCheckout(),
    buildTime: built.build_time ?? statSync(join(ROOT, 'package.json')).mtime.toISOString(),
  }
}
