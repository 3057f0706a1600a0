/**
 * Loads the transpiler into a thread that ends after one component: with a limited memory, and with the form of its shim that has no
 * access to the host. The files of its package are used as they are, because it reads its core modules beside them.
 */
import { registerHooks } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { packageFolder } from '#core/installation.ts'
import type { Generate } from '../transpiled/index.ts'
import { PAGE_BYTES, readModule } from '../wasm/index.ts'
import { withMemoryMaximum } from './memory-maximum.ts'

const TRANSPILER = {
  name: '@bytecodealliance/jco-transpile',
  folder: 'vendor',
  file: 'js-component-bindgen-component.js',
}
const SHIM = { name: '@bytecodealliance/preview2-shim', folder: 'dist/browser' }
/** A component without its code takes a few megabytes; one with the most types that the parsers accept is far below this. */
const MAX_MEMORY_BYTES = 256 * 1024 * 1024

const fileOf = (name: string, folder: string, file: string) =>
  pathToFileURL(join(packageFolder(name, folder), file)).href

export async function loadTranspiler(): Promise<Generate> {
  limitMemories()
  // oxlint-disable-next-line no-console -- it writes its assertions there, with a stack; the log of the process is for operators
  console.error = () => undefined
  registerHooks({
    resolve: (specifier, context, next) =>
      specifier.startsWith(`${SHIM.name}/`)
        ? { url: fileOf(SHIM.name, SHIM.folder, `${specifier.slice(SHIM.name.length + 1)}.js`), shortCircuit: true }
        : next(specifier, context),
  })
  const loaded = (await import(fileOf(TRANSPILER.name, TRANSPILER.folder, TRANSPILER.file))) as {
    $init: Promise<void>
    generate: Generate
  }
  await loaded.$init
  return loaded.generate
}

/** It compiles its core modules when it is imported. */
function limitMemories(): void {
  const compile = WebAssembly.compile.bind(WebAssembly)
  WebAssembly.compile = async (source: Parameters<typeof compile>[0]) => {
    const bytes = ArrayBuffer.isView(source)
      ? new Uint8Array(source.buffer, source.byteOffset, source.byteLength)
      : new Uint8Array(source)
    const layout = readModule(bytes, { allowGc: true })
    const ownsMemory = layout.memories.length > 0 && !layout.imports.some(({ kind }) => kind === 'memory')
    return await compile(ownsMemory ? withMemoryMaximum(layout, MAX_MEMORY_BYTES / PAGE_BYTES) : source)
  }
}
