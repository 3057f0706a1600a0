/** `npm run console`: builds the web console for the programs of this checkout, unless it is built. Prints its folder. */
import { join } from 'node:path'
import { HOME } from '#core/installation.ts'
import { buildConsole } from './start/console.ts'

const folder = await buildConsole(join(HOME, 'node_modules', '.cache', 'console'), {
  signal: new AbortController().signal,
  nice: 0,
})
process.stdout.write(`${folder}\n`)
