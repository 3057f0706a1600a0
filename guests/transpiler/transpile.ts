/**
 * Converts a component to a script and core modules. Components are untrusted: a worker calls it in a process, and a browser
 * in a thread, that ends afterwards.
 */
import { $init, generate } from '@bytecodealliance/jco-transpile/component'
import { transpileWith } from '../transpiled/index.ts'
import type { TranspileOptions, TranspiledComponent } from '../transpiled/index.ts'

/** Throws ModuleRefusal, or a value of the transpiler (`sentenceOf`). */
export async function transpileComponent(
  component: Uint8Array,
  options: TranspileOptions = {},
): Promise<TranspiledComponent> {
  await $init
  return transpileWith(generate, component, options)
}
