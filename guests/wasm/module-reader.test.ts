/** The parser with the examples, constructed modules and thousands of damaged ones. */
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import wabt from 'wabt'
import {
  DEFAULT_MODULE_BOUNDS,
  ModuleRefusal,
  describeModule,
  findUnofferedImports,
  readBoundedModule,
} from './index.ts'

const { parseWat } = await wabt().then((library) => ({ parseWat: library.parseWat.bind(library) }))

function example(name: string): Uint8Array {
  return readFileSync(fileURLToPath(new URL(`../../examples/${name}/${name}.wasm`, import.meta.url)))
}

function fromText(text: string, features = {}): Uint8Array {
  return parseWat('test.wat', text, features).toBinary({}).buffer
}

const EXAMPLES = ['add', 'fibonacci', 'hello', 'endless', 'memory-eater', 'table-bomb']

describe('what a module offers', () => {
  test('lists exported functions with their types', () => {
    const { exports } = describeModule(readBoundedModule(example('add')))
    expect(exports).toEqual([{ name: 'add', kind: 'function', params: ['i32', 'i32'], results: ['i32'] }])
  })

  test('lists imports, and supports all of WASI preview 1', () => {
    const layout = readBoundedModule(example('hello'))
    expect(describeModule(layout).imports.map(({ name }) => name)).toContain('fd_write')
    expect(findUnofferedImports(layout)).toEqual([])
  })

  test('names an unsupported import with its type', () => {
    const layout = readBoundedModule(
      fromText(`(module (import "env" "open" (func (param i64) (result i32))) (import "env" "heap" (memory 1)))`),
    )
    expect(findUnofferedImports(layout)).toEqual(['env.open (i64) -> (i32)', 'env.heap memory'])
  })

  test('reports a WASI function with another signature as unsupported', () => {
    const layout = readBoundedModule(
      fromText(`(module (import "wasi_snapshot_preview1" "fd_close" (func (param i64) (result i32))))`),
    )
    expect(findUnofferedImports(layout)).toEqual(['wasi_snapshot_preview1.fd_close (i64) -> (i32)'])
  })
})

describe('what a module may ask for', () => {
  test.each([
    [
      'a memory above the limit',
      '(module (memory 1025))',
      '1025 pages (67174400 bytes), the memory_limit is 67108864 bytes; set memory_limit to at least 67174400',
    ],
    ['two memories', '(module (memory 1) (memory 1))', '2 memories, at most 1'],
    ['a shared memory', '(module (memory 1 2 shared))', 'shared memory'],
    ['tables above a million entries', '(module (table 1000001 funcref))', '1000001 entries, at most 1000000'],
    ['table maxima above a million entries', '(module (table 0 2000000 funcref))', '2000000 entries'],
  ])('rejects %s, with both figures', (_, text, sentence) => {
    const bytes = fromText(text, { multi_memory: true, threads: true })
    expect(() => readBoundedModule(bytes)).toThrow(sentence)
  })

  test('rejects more functions and longer bodies than the limits', () => {
    const functions = fromText(`(module ${'(func)'.repeat(11)})`)
    expect(() => readBoundedModule(functions, { ...DEFAULT_MODULE_BOUNDS, maxFunctions: 10 })).toThrow('11 functions')
    const body = fromText(`(module (func ${'nop '.repeat(100)}))`)
    expect(() => readBoundedModule(body, { ...DEFAULT_MODULE_BOUNDS, maxBodyBytes: 100 })).toThrow('102 bytes')
  })

  test('rejects a module above the module limit', () => {
    const bounds = { ...DEFAULT_MODULE_BOUNDS, maxModuleBytes: 40 }
    expect(() => readBoundedModule(example('add'), bounds)).toThrow('41 bytes, at most 40')
  })

  test('rejects garbage-collected types unless they are allowed', () => {
    // (module (type (struct (field i32))))
    const bytes = Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 1, 5, 1, 0x5f, 1, 0x7f, 0)
    expect(() => readBoundedModule(bytes)).toThrow('0x5f')
    expect(readBoundedModule(bytes, { ...DEFAULT_MODULE_BOUNDS, allowGc: true }).exports).toEqual([])
  })

  test('rejects a component, text and an empty file with the reason', () => {
    const component = Uint8Array.of(0, 0x61, 0x73, 0x6d, 0x0d, 0, 1, 0)
    expect(() => readBoundedModule(component)).toThrow('component')
    expect(() => readBoundedModule(new TextEncoder().encode('(module)'))).toThrow('not a WebAssembly module')
    expect(() => readBoundedModule(new Uint8Array())).toThrow('not a WebAssembly module')
  })
})

describe('damaged modules', () => {
  const outcome = (bytes: Uint8Array): 'accepted' | 'refused' => {
    try {
      readBoundedModule(bytes)
      return 'accepted'
    } catch (error) {
      // Any other outcome than a refusal is a bug of the parser.
      if (error instanceof ModuleRefusal) return 'refused'
      throw error
    }
  }

  test('are accepted or rejected with a refusal', () => {
    const edit = fc.record({
      at: fc.nat(20_000),
      byte: fc.nat(255),
      kind: fc.constantFrom('set', 'cut', 'insert', 'drop'),
    })
    const property = fc.property(
      fc.constantFrom(...EXAMPLES),
      fc.array(edit, { minLength: 1, maxLength: 8 }),
      (name, edits) => {
        let bytes = [...example(name)]
        for (const { at, byte, kind } of edits) {
          const index = bytes.length === 0 ? 0 : at % bytes.length
          if (kind === 'set') bytes[index] = byte
          else if (kind === 'cut') bytes = bytes.slice(0, index)
          else if (kind === 'insert') bytes.splice(index, 0, byte)
          else bytes.splice(index, 1)
        }
        expect(['accepted', 'refused']).toContain(outcome(Uint8Array.from(bytes)))
      },
    )
    fc.assert(property, { numRuns: 3_000 })
  })

  test('of random bytes after a valid header are accepted or rejected', () => {
    const property = fc.property(fc.uint8Array({ maxLength: 300 }), (tail) => {
      expect(['accepted', 'refused']).toContain(outcome(Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, ...tail)))
    })
    fc.assert(property, { numRuns: 3_000 })
  })

  test('truncated anywhere but between sections are rejected', () => {
    const whole = example('hello')
    const ends = new Set([8, ...readBoundedModule(whole).sections.map((section) => section.end)])
    for (let length = 0; length < whole.length; length += 7) {
      if (!ends.has(length)) expect(outcome(whole.subarray(0, length)), `${length} bytes`).toBe('refused')
    }
  })
})
