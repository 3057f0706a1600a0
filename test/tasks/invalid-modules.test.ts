// task-manager.md section 1: PUT /tasks/{id}/upload refuses an invalid module
import { parse } from '@bytecodealliance/jco-transpile/wasm-tools'
import { afterAll, expect, test } from 'vitest'
import { validateModule } from '#guests/module-reading/index.ts'
import { kindOf } from '#core/errors/index.ts'
import { transpileComponent } from '#guests/transpiler/index.ts'
import { moduleFromText } from '../worker/pool.ts'
import { exampleModule, startSite } from './support.ts'

const { client, close } = await startSite()
afterAll(close)

const COMPONENT = `(component
  (core module $m (memory (export "memory") 1)
    (func (export "add") (param i32 i32) (result i32) (i32.add (local.get 0) (local.get 1)))
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 16))
    (func (export "len") (param i32 i32) (result i32) (local.get 1)))
  (core instance $i (instantiate $m))
  (func $add (param "a" s32) (param "b" s32) (result s32) (canon lift (core func $i "add")))
  (func $len (param "s" string) (result u32)
    (canon lift (core func $i "len") (memory (core memory $i "memory")) (realloc (core func $i "realloc"))))
  (export "add" (func $add)) (export "len" (func $len)))`
const CHANGES = 120

async function upload(bytes: Buffer) {
  const { body } = await client.post('/tasks', { name: 'add' })
  const id = String(body['id'])
  return { id, ...(await client.upload(id, bytes)) }
}

test('a component that no engine accepts is refused at upload with the reason; a valid one runs', async () => {
  const valid = Buffer.from(await parse(COMPONENT))
  const { id, status } = await upload(valid)
  expect(status).toBe(200)
  expect((await client.post(`/tasks/${id}/invoke`, { inputs: [1, 2] })).body['results']).toBe(3)
  const other = await parse(COMPONENT.replace('(param "b" s32) (result s32)', '(result s32)'))
  expect(await upload(Buffer.from(other))).toMatchObject({
    status: 400,
    body: { error: 'malformed', message: expect.stringMatching(/^invalid component: .+/) as string },
  })
})

test('a core module whose code does not match its types is refused at upload', async () => {
  const bytes = exampleModule('add')
  // i32.add becomes f64.add.
  bytes[bytes.lastIndexOf(0x6a)] = 0xa0
  expect(await upload(bytes)).toMatchObject({
    status: 400,
    body: { message: 'invalid module: its functions have invalid code' },
  })
})

test('an initial memory is checked against the memory_limit of its task', async () => {
  const bytes = Buffer.from(
    await moduleFromText('(module (memory 1100) (func (export "run") (result i32) memory.size))'),
  )
  const [small, large] = await Promise.all(
    [{}, { memory_limit: '128MiB' }].map((limit) => client.post('/tasks', { name: 'run', ...limit })),
  )
  expect(await client.upload(String(small?.body['id']), bytes)).toMatchObject({
    status: 400,
    body: {
      message:
        'the memory starts with 1100 pages (72089600 bytes), the memory_limit is 67108864 bytes; set memory_limit to at least 72089600',
    },
  })
  const id = String(large?.body['id'])
  expect((await client.upload(id, bytes)).status).toBe(200)
  expect((await client.post(`/tasks/${id}/invoke`)).body['results']).toEqual([1100])
})

test('a 64-bit memory whose maximum is above that of the engine is accepted, and grows to its limit', async () => {
  const bytes = Buffer.from(
    await parse(`(module (memory i64 1 10000000)
      (func (export "run") (result i64) (drop (memory.grow (i64.const 1023))) (memory.grow (i64.const 1))))`),
  )
  const { id, status } = await upload(bytes)
  expect(status).toBe(200)
  expect((await client.post(`/tasks/${id}/invoke`, { function: 'run' })).body['results']).toEqual([-1])
  bytes[bytes.length - 2] = 0x01
  expect(await upload(bytes)).toMatchObject({ status: 400 })
})

test('an accepted component with one byte changed can be transpiled and compiled', async () => {
  const valid = Buffer.from(await parse(COMPONENT))
  let taken = 0
  for (let change = 0; change < CHANGES; change++) {
    const changed = new Uint8Array(valid)
    // Places and values that cover the whole without a pattern; the same in every run.
    changed[(change * 7919) % changed.length] = (change * 104_729) % 256
    const isTaken = await validateModule(new Uint8Array(changed), 'test', 64 * 1024 * 1024).then(
      () => true,
      (error: unknown) => {
        expect(kindOf(error)).toBe('malformed')
        return false
      },
    )
    if (!isTaken) continue
    taken++
    const { cores } = await transpileComponent(changed)
    for (const [, bytes] of cores) expect(WebAssembly.validate(Buffer.from(bytes))).toBe(true)
  }
  expect(taken).toBeGreaterThan(CHANGES / 20)
}, 120_000)
