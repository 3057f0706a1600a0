/**
 * Converts a component to a script and core modules. Components are untrusted: a worker calls it in a process, and a browser
 * in a thread, that ends afterwards.
 */
import { $init, generate } from '@bytecodealliance/jco-transpile/component'
import { renameCoreNames } from '../wasm/index.ts'

/** The name of the script among the generated files. */
const SCRIPT = 'component.js'

export type TranspiledComponent = {
  /** An expression: the function that creates instances. */
  script: string
  /** Each core module has the name with which the script asks for it. */
  cores: [name: string, bytes: Uint8Array][]
}

/** Throws ModuleRefusal, or a value of the transpiler (`sentenceOf`). `rewrite`: changes the statements of the script. */
export async function transpileComponent(
  component: Uint8Array,
  rewrite: (statements: string) => string = (statements) => statements,
): Promise<TranspiledComponent> {
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
  const source = files.find(([name]) => name === SCRIPT)?.[1]
  if (source === undefined) throw new Error('the transpiler returned no code')
  const cores = files.filter(([name]) => name.endsWith('.wasm'))
  return { script: toScript(new TextDecoder().decode(source), rewrite), cores }
}

/**
 * A module can never be unloaded; a script is collected with its context. Its value is the function that creates instances. The script is
 * in strict mode like the original module: otherwise `this` would be the global object.
 */
function toScript(source: string, rewrite: (statements: string) => string): string {
  const script = source
    .replace(/^export function instantiate\(/m, 'function instantiate(')
    .replace(/^export const _util\b/m, 'const _util')
  if (/^(export|import)\b/m.test(script)) throw new Error('the transpiled code has unknown exports')
  return `(function () {\n'use strict'\n${rewrite(script)}\nreturn instantiate\n})()`
}

/** The message of any thrown value; the transpiler throws values of its own. */
export function sentenceOf(error: unknown): string {
  const { payload } = error as { payload?: unknown }
  return typeof payload === 'string' ? payload : error instanceof Error ? error.message : String(error)
}
