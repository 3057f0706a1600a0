/**
 * Validates components with `wasm-tools component wit` of the Component Model's own tools, a core module that runs here as a
 * guest. Its only host function is a source of random numbers, and its memory is limited. It does not validate function bodies of
 * core modules: the engine does.
 */
import { randomFillSync } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { packageFolder } from '#core/installation.ts'
import { ModuleRefusal, PAGE_BYTES, readComponent, readModule } from '../wasm/index.ts'
import { withMemoryMaximum } from './memory-maximum.ts'

const TOOLS = { name: '@bytecodealliance/jco-transpile', folder: 'vendor', file: 'wasm-tools.core.wasm' } as const
const VALIDATE = 'local:wasm-tools/tools#component-wit'
/** Memory of the tools: a base, and a multiple of the component's size. A component of 12 MB takes 17 MB. */
const BASE_MEMORY_BYTES = 32 * 1024 * 1024
const MEMORY_PER_BYTE = 4
/** The number of pages by which the tools grow their memory at a time. */
const NEARLY_FULL_PAGES = 64
/** Error codes of WASI preview 1. */
const [SUCCESS, BAD_DESCRIPTOR] = [0, 8] as const
const MAX_REASON_CHARACTERS = 300

type Tools = {
  memory: WebAssembly.Memory
  cabi_realloc: (pointer: number, size: number, align: number, newSize: number) => number
  [VALIDATE]: (pointer: number, length: number) => number
}

/** The memory limit for validating a component of this size. */
export const validationMemoryBytes = (componentBytes: number): number =>
  BASE_MEMORY_BYTES + MEMORY_PER_BYTE * componentBytes

/** Throws ModuleRefusal with the reason why the component is invalid, or when validation exceeds the memory limit. */
export function validateComponent(bytes: Uint8Array<ArrayBuffer>, memoryBytes: number): void {
  const maxPages = Math.ceil(memoryBytes / PAGE_BYTES)
  const tools = startTools(maxPages)
  const reason = reasonOf(tools, bytes, maxPages)
  if (reason !== undefined) throw new ModuleRefusal(`invalid component: ${reason}`)
  for (const [index, module] of readComponent(bytes).coreModules.entries())
    if (!WebAssembly.validate(Buffer.from(module)))
      throw new ModuleRefusal(`invalid component: core module ${index} has invalid code`)
}

function reasonOf(tools: Tools, bytes: Uint8Array, maxPages: number): string | undefined {
  try {
    const at = tools.cabi_realloc(0, 0, 1, bytes.length) >>> 0
    new Uint8Array(tools.memory.buffer, at, bytes.length).set(bytes)
    const answerAt = tools[VALIDATE](at, bytes.length) >>> 0
    const answer = new DataView(tools.memory.buffer, answerAt, 12)
    if (answer.getUint8(0) === 0) return undefined
    return sentence(Buffer.from(tools.memory.buffer, answer.getUint32(4, true), answer.getUint32(8, true)))
  } catch (error) {
    if (!(error instanceof WebAssembly.RuntimeError) && !(error instanceof RangeError)) throw error
    const isFull =
      tools.memory.buffer.byteLength / PAGE_BYTES + NEARLY_FULL_PAGES + bytes.length / PAGE_BYTES > maxPages
    return isFull ? `validation takes more than ${maxPages * PAGE_BYTES} bytes of memory` : 'it cannot be parsed'
  }
}

/** The first line of the tools' error; it may contain names of the component. */
function sentence(text: Buffer): string {
  const parts = text
    .toString()
    .split('\n')
    .map((part) =>
      part
        .trim()
        .replace(/^Caused by:/, '')
        .trimStart(),
    )
  const line = parts.filter((part) => part !== '').join(' ')
  return line.replaceAll(/\p{C}/gu, '').trim().slice(0, MAX_REASON_CHARACTERS).toWellFormed()
}

function startTools(maxPages: number): Tools {
  const layout = readModule(readFileSync(join(packageFolder(TOOLS.name, TOOLS.folder), TOOLS.file)), { allowGc: true })
  const module = new WebAssembly.Module(withMemoryMaximum(layout, maxPages))
  // Called later, when the tools run.
  const view = () => new DataView(tools.memory.buffer)
  const offered: Record<string, (...values: number[]) => number> = {
    random_get(at = 0, length = 0) {
      randomFillSync(new Uint8Array(view().buffer, at >>> 0, length >>> 0))
      return SUCCESS
    },
    environ_sizes_get(countAt = 0, bytesAt = 0) {
      view().setUint32(countAt >>> 0, 0, true)
      view().setUint32(bytesAt >>> 0, 0, true)
      return SUCCESS
    },
    environ_get: () => SUCCESS,
    proc_exit() {
      throw new WebAssembly.RuntimeError('exit')
    },
  }
  const refuse = () => BAD_DESCRIPTOR
  const imports = Object.fromEntries(layout.imports.map(({ name }) => [name, offered[name] ?? refuse] as const))
  const { exports } = new WebAssembly.Instance(module, { wasi_snapshot_preview1: imports })
  const tools = exports as unknown as Tools
  return tools
}
