/** Node for a platform: the package of the lock file, from node_modules or, for another platform, from the registry. */
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import type { Platform } from './single-file.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const CACHE = join(ROOT, 'node_modules', '.cache', 'node-packages')

/** The folder of the package. Throws if what was downloaded is not what the lock file names. */
export function nodePackage(platform: Platform): string {
  const { packages } = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { version: string; integrity: string } | undefined>
  }
  const name = `node-${platform}`
  const locked = packages[`node_modules/${name}`]
  if (locked === undefined) throw new Error(`package-lock.json has no ${name}`)
  const installed = join(ROOT, 'node_modules', name)
  if (existsSync(installed)) return installed
  const folder = join(CACHE, `${name}-${locked.version}`)
  if (existsSync(folder)) return folder
  mkdirSync(CACHE, { recursive: true })
  const draft = mkdtempSync(join(CACHE, 'draft-'))
  try {
    const options = { cwd: draft, encoding: 'utf8' as const }
    const output = execFileSync('npm', ['pack', '--silent', `${name}@${locked.version}`], options)
    const file = join(draft, output.trim().split('\n').at(-1) ?? '')
    const [algorithm = '', wanted] = locked.integrity.split(/-(.*)/s)
    const found = createHash(algorithm).update(readFileSync(file)).digest('base64')
    if (found !== wanted) throw new Error(`${name}@${locked.version} of the registry is not that of package-lock.json`)
    execFileSync('tar', ['-xzf', file, '-C', draft])
    renameSync(join(draft, 'package'), folder)
  } finally {
    rmSync(draft, { recursive: true, force: true })
  }
  return folder
}
