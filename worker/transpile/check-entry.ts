/**
 * A process that checks one transpiled script and exits: script on stdin; on stdout a frame without files, or the error.
 */
import { checkScript } from '#guests/scripts/index.ts'
import { confirmIsolation } from '../isolation/confirm.ts'
import { encodeFrame, readInput } from './frame.ts'

confirmIsolation()
const checked = readInput(process.stdin).then((script) => checkScript(script.toString()))
process.stdout.write(
  await checked.then(
    () => encodeFrame([]),
    (error: unknown) => encodeFrame(error instanceof Error ? error.message : String(error)),
  ),
)
