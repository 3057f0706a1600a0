/**
 * A process that transpiles one component and ends: component on stdin, on stdout a frame with its code as a script and
 * its core modules. It may read its own code alone.
 */
import { $init, generate } from '@bytecodealliance/jco-transpile/component'
import { confirmIsolation } from '../isolation/confirm.ts'
import { COMPONENT_SCRIPT } from './files.ts'
import { renameCoreNames } from '#core/wasm/index.ts'
import { encodeFrame } from './frame.ts'

async function readInput(): Promise<Buffer> {
  const parts: Buffer[] = []
  for await (const part of process.stdin) parts.push(part as Buffer)
  return Buffer.concat(parts)
}

/**
 * A module can never be unloaded; a script is collected with whoever compiled it. Its value is the function that makes
 * instances.
 */
function toScript(source: string): string {
  const script = source
    .replace(/^export function instantiate\(/m, 'function instantiate(')
    .replace(/^export const _util\b/m, 'const _util')
  if (/^(export|import)\b/m.test(script)) throw new Error('the transpiled code has exports that are not known')
  return `(() => {\n${script}\nreturn instantiate\n})()`
}

async function transpile(): Promise<Buffer> {
  // The transpiler writes core names into the script as they are.
  const component = renameCoreNames(await readInput())
  await $init
  const { files } = generate(component, {
    name: 'component',
    noTypescript: true,
    instantiation: { tag: 'sync' },
    noNodejsCompat: true,
    noNamespacedExports: false,
    noComponentErrorWrapping: false,
    base64Cutoff: 0,
  })
  const cores = files.filter(([name]) => name.endsWith('.wasm'))
  const source = files.find(([name]) => name === COMPONENT_SCRIPT)
  if (source === undefined) throw new Error('the transpiler made no code')
  return encodeFrame([[COMPONENT_SCRIPT, Buffer.from(toScript(Buffer.from(source[1]).toString()))], ...cores])
}

function sentenceOf(error: unknown): string {
  const { payload } = error as { payload?: unknown }
  return typeof payload === 'string' ? payload : error instanceof Error ? error.message : String(error)
}

confirmIsolation()
process.stdout.write(await transpile().catch((error: unknown) => encodeFrame(sentenceOf(error))))
