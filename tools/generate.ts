/**
 * `npm run generate` writes every generated file; with `--check` it compares them, lists the stale ones and exits with 1.
 */
import { globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { parseArgs } from 'node:util'
import { GENERATED_FOLDERS, generateAll } from './generate/index.ts'

const ROOT = join(import.meta.dirname, '..')

const { values } = parseArgs({ options: { check: { type: 'boolean', default: false } } })

const files = await generateAll()
const stale = [...files].filter(([path, text]) => readIfThere(path) !== text).map(([path]) => path)
const leftOver = GENERATED_FOLDERS.flatMap((folder) => globSync(`${folder}/**/*.ts`, { cwd: ROOT })).filter(
  (path) => !files.has(path),
)

if (values.check) {
  for (const path of stale) console.error(`${path} is stale`)
  for (const path of leftOver) console.error(`${path} has no source`)
  if (stale.length + leftOver.length > 0) {
    console.error('run `npm run generate` and commit what it writes')
    process.exitCode = 1
  } else console.log(`${files.size} generated files are up to date`)
} else {
  for (const path of stale) {
    mkdirSync(dirname(join(ROOT, path)), { recursive: true })
    writeFileSync(join(ROOT, path), files.get(path) ?? '')
    console.log(`wrote ${path}`)
  }
  for (const path of leftOver) {
    rmSync(join(ROOT, path))
    console.log(`removed ${path}`)
  }
  if (stale.length + leftOver.length === 0) console.log(`${files.size} generated files are up to date`)
}

function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(join(ROOT, path), 'utf8')
  } catch {
    return undefined
  }
}
