/** What the transpiler makes of a component, as a script that needs no module loader. */
import type { generate } from '@bytecodealliance/jco-transpile/component'
import { ModuleRefusal, renameCoreNames } from '../wasm/index.ts'

/** The name of the script among the generated files. */
const SCRIPT = 'component.js'
/** The limit of `checkScript`; names in a script are ASCII. */
const MAX_SCRIPT_BYTES = 4 * 1024 * 1024

export type TranspiledComponent = {
  /** An expression: the function that creates instances. */
  script: string
  /** Each core module has the name with which the script asks for it. */
  cores: [name: string, bytes: Uint8Array][]
}

export type TranspileOptions = {
  /** Changes the statements of the script. */
  rewrite?: (statements: string) => string
  /** For the script alone: without the code of the core modules, it takes a fraction of time and memory. */
  isHollow?: boolean
}

/** `generate` of jco-transpile. */
export type Generate = typeof generate

/** Throws ModuleRefusal, or a value of the transpiler (`sentenceOf`). */
export function transpileWith(
  generator: Generate,
  component: Uint8Array,
  { rewrite = (statements) => statements, isHollow = false }: TranspileOptions = {},
): TranspiledComponent {
  // The transpiler writes core names unescaped into the script.
  const renamed = renameCoreNames(component, { isHollow })
  const { files } = generator(renamed, {
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
  // Before it is text, which is in the heap of the thread.
  if (source.length > MAX_SCRIPT_BYTES)
    throw new ModuleRefusal(`its script has more than ${MAX_SCRIPT_BYTES} characters`)
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

const MAX_CAUSE_CHARACTERS = 500

/** Messages of the transpiler that do not say what to do. */
const CAUSES: readonly (readonly [message: RegExp, cause: string])[] = [
  [
    /exceptions proposal not enabled/,
    'a core module of it uses exceptions, which components cannot use here; compile without exceptions (C++: -fno-exceptions) and without setjmp',
  ],
]
/** The transpiler ends by an assertion for strings in the third encoding, and for features that it does not have. */
const UNSUPPORTED =
  'it uses a feature that the transpiler does not support, such as strings in latin1+utf16; use utf8 or utf16'

/** The message of any thrown value in one line; the transpiler throws values of its own. */
export function sentenceOf(error: unknown): string {
  if (error instanceof WebAssembly.RuntimeError) return UNSUPPORTED
  const { payload } = error as { payload?: unknown }
  const message = typeof payload === 'string' ? payload : error instanceof Error ? error.message : String(error)
  const cause = CAUSES.find(([pattern]) => pattern.test(message))?.[1]
  return (
    cause ??
    message
      .split('\n')
      .map((line) => line.trim())
      .join(' ')
      .slice(0, MAX_CAUSE_CHARACTERS)
      .toWellFormed()
  )
}
