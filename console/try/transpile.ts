/** Transpiles one component in a thread that ends afterwards. Names that the transpiler would copy to the script are replaced before. */
import { given } from './transpiler-files.ts'
// oxlint-disable-next-line import/first -- the order is what makes it work
import { $init, generate } from '@bytecodealliance/jco-transpile/component'
import { renameCoreNames } from '#core/wasm/index.ts'
import type { Transpiled } from './protocol.ts'

const SCRIPT = 'component.js'
async function transpile(): Promise<Transpiled> {
  const { component } = await given.promise
  const renamed = renameCoreNames(new Uint8Array(component))
  await $init
  // As worker/transpile/generate.ts.
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
  return { script: toScript(new TextDecoder().decode(source)), cores: cores as Transpiled['cores'] }
}

/** An expression: the function that creates instances. */
function toScript(source: string): string {
  const script = source
    .replace(/^export function instantiate\(/m, 'function instantiate(')
    .replace(/^export const _util\b/m, 'const _util')
  if (/^(export|import)\b/m.test(script)) throw new Error('the transpiled code has unknown exports')
  return `(function () {\n'use strict'\n${script}\nreturn instantiate\n})()`
}

void transpile().then(
  (transpiled) => postMessage({ transpiled }),
  (error: unknown) => postMessage({ failure: `the component cannot be transpiled: ${sentenceOf(error)}` }),
)

/** The transpiler throws values of its own. */
function sentenceOf(error: unknown): string {
  const { payload } = error as { payload?: unknown }
  return typeof payload === 'string' ? payload : error instanceof Error ? error.message : String(error)
}
