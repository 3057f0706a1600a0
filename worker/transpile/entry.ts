/**
 * A process that transpiles one component and exits: component on stdin; on stdout a frame with its code as a script and
 * its core modules. It can read only its own code, which it loads before the component arrives.
 */
import { sentenceOf, transpileComponent } from '#guests/transpiler/index.ts'
import { confirmIsolation } from '../isolation/confirm.ts'
import { COMPONENT_SCRIPT } from './files.ts'
import { encodeFrame, readInput } from './frame.ts'
import type { TranspiledFile } from './frame.ts'
import { shareDefinitions } from './share-definitions.ts'

/** A component with nothing in it. */
const EMPTY_COMPONENT = Uint8Array.of(0x00, 0x61, 0x73, 0x6d, 0x0d, 0x00, 0x01, 0x00)

async function transpile(component: Uint8Array): Promise<TranspiledFile[]> {
  const { script, cores } = await transpileComponent(component, { rewrite: shareDefinitions })
  return [[COMPONENT_SCRIPT, Buffer.from(script)], ...cores]
}

confirmIsolation()
// Loads and compiles the transpiler, which takes longer than to transpile a small component.
await transpileComponent(EMPTY_COMPONENT)
const transpiled = readInput(process.stdin).then(transpile)
process.stdout.write(await transpiled.then(encodeFrame, (error: unknown) => encodeFrame(sentenceOf(error))))
