/**
 * Starts a program by its name: `node programs/run.ts all`. It runs the build that `npm ci` made of this checkout, which starts in
 * little more than half the time, and the sources where there is no build of exactly these.
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { findBuilt } from '#core/built-programs.ts'
import { HOME } from '#core/installation.ts'

/** A name, and not a path. */
const NAME = /^[a-z]+$/
const WRONG_USAGE = 2

const [node = '', , name = '', ...rest] = process.argv
const source = join(HOME, 'programs', `${name}.ts`)
if (!NAME.test(name) || !existsSync(source)) {
  process.stderr.write(`no program has the name "${name}"\n`)
  process.exit(WRONG_USAGE)
}
const file = findBuilt(HOME, name) ?? source
process.argv = [node, file, ...rest]
await import(pathToFileURL(file).href)
