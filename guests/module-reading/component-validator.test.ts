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

test('a valid component is accepted', async () => {
  expect(reasonOf(await bytesOf(withCore('(local.get 0)')))).toBe('')
})

test.each([
  ['a lifted function of other types', withCore('(local.get 0)', '(param "a" s32) (param "b" s32) (result s32)')],
  [
    'an instance without what its module imports',
    '(component (core module $m (import "a" "b" (func))) (core instance (instantiate $m)))',
  ],
  [
    'a missing export',
    '(component (core module $m) (core instance $i (instantiate $m)) (func (export "f") (canon lift (core func $i "f"))))',
  ],
])('%s is rejected with a one-line reason', async (_, wat) => {
  expect(reasonOf(await bytesOf(wat))).toMatch(/^invalid component: [^\n]{10,}$/)
})

test('the code of a core module does not match its function types', async () => {
  expect(reasonOf(await bytesOf(withCore('(i64.const 1)')))).toBe('invalid component: core module 0 has invalid code')
})

test('memory is limited', async () => {
  const custom = Buffer.alloc(5 * 1024 * 1024)
  const valid = await bytesOf(withCore('(local.get 0)'))
  // A custom section, which anyone may add.
  const size = [0x80, 0x80, 0xc0, 0x02]
  const large = new Uint8Array(Buffer.concat([valid, Buffer.from([0, ...size]), custom])) as Uint8Array<ArrayBuffer>
  expect(reasonOf(large)).toBe('')
  expect(reasonOf(large, 4 * 1024 * 1024)).toMatch(/takes more than 4194304 bytes of memory/)
})
