/** `npm run console`: builds the web console for the programs of this checkout, unless it is built. Prints its folder. */
import { EXIT_FAILED } from '#core/errors/index.ts'
import { errorMessageOf } from '#core/program/index.ts'
import { buildConsole } from './start/console.ts'

try {
  process.stdout.write(`${await buildConsole()}\n`)
} catch (error) {
  process.stderr.write(`${errorMessageOf(error)}\n`)
  process.exitCode = EXIT_FAILED
}
