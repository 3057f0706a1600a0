import { globSync } from 'node:fs'
import { mkdtemp, open, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { describeComponent, describeModule, readComponent, readModule, readModuleKind } from '#guests/wasm/index.ts'
import { interfacesOf, readModuleFacts } from './module-facts.ts'

const examples = globSync('examples/*/*.wasm', { cwd: join(import.meta.dirname, '../..') }).toSorted()

async function factsOf(bytes: Uint8Array) {
  const folder = await mkdtemp(join(tmpdir(), 'skein-facts-'))
  try {
    const path = join(folder, 'module.wasm')
    await writeFile(path, bytes)
    await using handle = await open(path, 'r')
    return await readModuleFacts(handle, bytes.length, 'somebody')
  } finally {
    await rm(folder, { recursive: true })
  }
}

test('there are examples to read', () => {
  expect(examples.length).toBeGreaterThan(3)
})

test.each(examples)('%s has the same exports and imports without its code', async (path) => {
  const bytes = await readFile(join(import.meta.dirname, '../..', path))
  const facts = await factsOf(bytes)
  const kind = readModuleKind(bytes)
  const whole =
    kind === 'core' ? describeModule(readModule(bytes, { allowGc: true })) : describeComponent(readComponent(bytes))
  expect(facts).toEqual({ kind, exports: whole.exports, imports: whole.imports })
})

test('a component has the names of its interfaces and functions, a core module none', async () => {
  const bytes = await readFile(join(import.meta.dirname, '../../examples/unit-conversion/unit-conversion.wasm'))
  const { imports } = describeComponent(readComponent(bytes))
  const interfaces = interfacesOf(await factsOf(bytes))
  expect(interfaces?.exports).toContain('convert')
  expect(interfaces?.imports).toEqual(imports.map(({ module }) => module))
  const add = await readFile(join(import.meta.dirname, '../../examples/add/add.wasm'))
  expect(interfacesOf(await factsOf(add))).toBeUndefined()
})

test('a module header with invalid content has no exports, and bytes without a header are refused', async () => {
  const header = Buffer.from('\0asm\x01\0\0\0', 'latin1')
  const odd = Buffer.concat([header, Buffer.from([10, 255, 255, 255, 255, 15, 1, 2, 3])])
  expect(await factsOf(odd)).toEqual({ kind: 'core' })
  const lying = Buffer.concat([header, Buffer.from([3, 5, 255, 255, 255, 255, 15, 10, 1, 0])])
  expect(await factsOf(lying)).toEqual({ kind: 'core' })
  expect(await factsOf(header)).toEqual({ kind: 'core', exports: [], imports: [] })
  await expect(factsOf(Buffer.from('hello, world'))).rejects.toThrow('not a WebAssembly module')
  await expect(factsOf(Buffer.alloc(0))).rejects.toThrow('not a WebAssembly module')
})
