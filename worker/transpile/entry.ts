/**
 * A process that transpiles one component and exits: component on stdin; on stdout a frame with its code as a script and
 * its core modules. It can read only its own code, which it loads before the component arrives.
 */
import { confirmIsolation } from '../isolation/confirm.ts'
import { encodeFrame, readInput, sentenceOf } from './frame.ts'
import { transpileComponent, warmTranspiler } from './generate.ts'

confirmIsolation()
await warmTranspiler()
const transpiled = readInput(process.stdin).then(transpileComponent)
process.stdout.write(await transpiled.then(encodeFrame, (error: unknown) => encodeFrame(sentenceOf(error))))
