/** Generates the script and the core modules of one component. Must be called in a process that exits afterwards. */
import { $init, generate } from '@bytecodealliance/jco-transpile/component'
import { renameCoreNames } from '#core/wasm/index.ts'
import { COMPONENT_SCRIPT } from './files.ts'
import type { TranspiledFile } from './frame.ts'

/** A component with nothing in it. */
const EMPTY_COMPONENT = Uint8Array.of(0x00, 0x61, 0x73, 0x6d, 0x0d, 0x00, 0x01, 0x00)

/** Loads and compiles the transpiler, which takes longer than to transpile a small component. */
export async function warmTranspiler(): Promise<void> {
  await transpileComponent(EMPTY_COMPONENT)
}

/** Throws ModuleRefusal, or the errors of the transpiler. */
export async function transpileComponent(component: Uint8Array): Promise<TranspiledFile[]> {
  // The transpiler writes core names unescaped into the script.
  const renamed = renameCoreNames(component)
  await $init
  const { files } = generate(renamed, {
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
  if (source === undefined) throw new Error('the transpiler returned no code')
  return [[COMPONENT_SCRIPT, Buffer.from(toScript(Buffer.from(source[1]).toString()))], ...cores]
}

/**
 * A module can never be unloaded; a script is collected with its context. Its value is the function that creates
 * instances. In strict mode, as the original module: otherwise `this` would be the global object.
 */
function toScript(source: string): string {
  const script = source
    .replace(/^export function instantiate\(/m, 'function instantiate(')
    .replace(/^export const _util\b/m, 'const _util')
  if (/^(export|import)\b/m.test(script)) throw new Error('the transpiled code has unknown exports')
  return `(function () {\n'use strict'\n${script}\nreturn instantiate\n})()`
}
