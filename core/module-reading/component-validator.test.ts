import { parse } from '@bytecodealliance/jco-transpile/wasm-tools'
import { expect, test } from 'vitest'
import { ModuleRefusal } from '../wasm/index.ts'
import { validateComponent, validationMemoryBytes } from './component-validator.ts'

const bytesOf = async (wat: string) => new Uint8Array(await parse(wat)) as Uint8Array<ArrayBuffer>
const withCore = (body: string, lifted = '(param "a" s32) (result s32)') => `(component
  (core module $m (func (export "f") (param i32) (result i32) ${body}))
  (core instance $i (instantiate $m))
  (func $f ${lifted} (canon lift (core func $i "f")))
  (export "f" (func $f)))`

function reasonOf(bytes: Uint8Array<ArrayBuffer>, memoryBytes = validationMemoryBytes(bytes.length)): string {
  try {
    validateComponent(bytes, memoryBytes)
    return ''
  } catch (error) {
    expect(error).toBeInstanceOf(ModuleRefusal)
    return (error as Error).message
  }
}

test('a valid component is taken', async () => {
  expect(reasonOf(await bytesOf(withCore('(local.get 0)')))).toBe('')
})

test.each([
  ['a lifted function of other types', withCore('(local.get 0)', '(param "a" s32) (param "b" s32) (result s32)')],
  [
    'an instance without what its module imports',
    '(component (core module $m (import "a" "b" (func))) (core instance (instantiate $m)))',
  ],
  [
    'an export of what is not there',
    '(component (core module $m) (core instance $i (instantiate $m)) (func (export "f") (canon lift (core func $i "f"))))',
  ],
])('%s is not, and the reason is said in one line', async (_, wat) => {
  expect(reasonOf(await bytesOf(wat))).toMatch(/^the component is not valid: [^\n]{10,}$/)
})

test('the code of a core module is not what its functions promise', async () => {
  expect(reasonOf(await bytesOf(withCore('(i64.const 1)')))).toBe(
    'the component is not valid: the code of its core module 0 is not',
  )
})

test('no memory beyond the bound is taken', async () => {
  const custom = Buffer.alloc(5 * 1024 * 1024)
  const valid = await bytesOf(withCore('(local.get 0)'))
  // A custom section, which anybody may add.
  const size = [0x80, 0x80, 0xc0, 0x02]
  const large = new Uint8Array(Buffer.concat([valid, Buffer.from([0, ...size]), custom])) as Uint8Array<ArrayBuffer>
  expect(reasonOf(large)).toBe('')
  expect(reasonOf(large, 4 * 1024 * 1024)).toMatch(/takes more than 4194304 bytes of memory/)
})
