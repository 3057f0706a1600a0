// task-manager.md section 1: PUT /tasks/{id}/upload refuses a component that no worker can transpile, with the cause
import { afterAll, expect, test } from 'vitest'
import { componentFromText } from '../worker/pool.ts'
import { startSite } from './support.ts'

const { client, close } = await startSite()
afterAll(close)

async function upload(text: string) {
  const { body } = await client.post('/tasks', { name: 'run' })
  const id = String(body['id'])
  return { id, ...(await client.upload(id, Buffer.from(await componentFromText(text)))) }
}

/** A component that returns its text, from a function with this name. */
const echo = (name = 'run', encoding = 'utf8') => `(component
  (core module $m (memory (export "memory") 1)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
    (func (export "f") (param i32 i32) (result i32)
      (i32.store (i32.const 0) (local.get 0)) (i32.store (i32.const 4) (local.get 1)) (i32.const 0)))
  (core instance $i (instantiate $m))
  (func $f (param "s" string) (result string) (canon lift (core func $i "f")
    string-encoding=${encoding} (memory (core memory $i "memory")) (realloc (core func $i "realloc"))))
  (export "${name}" (func $f)))`

/** So many functions that their script is too large. */
const LARGE = `(component
  (core module $m (memory (export "memory") 1)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
    (func (export "f") (param i32 i32 i32 i32 i32 i32) (result i32) (i32.const 16)))
  (core instance $i (instantiate $m))
  ${Array.from(
    { length: 1_200 },
    (_, index) => `(func (export "measure-n${index}") (param "a" string) (param "b" string) (param "c" string)
      (result (list string)) (canon lift (core func $i "f") (memory (core memory $i "memory")) (realloc (core func $i "realloc"))))`,
  ).join(' ')})`

/** A component that exports a resource with this name, and a function. */
const resource = (name: string) => `(component
  (type $r (resource (rep i32)))
  (core func $new (canon resource.new $r))
  (core module $m (import "" "new" (func $new (param i32) (result i32)))
    (func (export "make") (result i32) (call $new (i32.const 5))) (func (export "run") (result i32) (i32.const 3)))
  (core instance $imports (export "new" (func $new)))
  (core instance $i (instantiate $m (with "" (instance $imports))))
  (func $make (result (own $r)) (canon lift (core func $i "make")))
  (func $run (result u32) (canon lift (core func $i "run")))
  (component $inner (import "r" (type $r (sub resource))) (import "make" (func $make (result (own $r))))
    (import "run" (func $run (result u32)))
    (export $e "${name}" (type $r)) (export "[constructor]${name}" (func $make) (func (result (own $e))))
    (export "run" (func $run)))
  (instance $x (instantiate $inner (with "r" (type $r)) (with "make" (func $make)) (with "run" (func $run))))
  (export "plant:meter/api@0.1.0" (instance $x)))`

const THROWS = `(component
  (core module $m (tag $t) (func (export "f") (result i32) (block $b (try_table (catch $t $b) (throw $t))) (i32.const 3)))
  (core instance $i (instantiate $m))
  (func (export "run") (result u32) (canon lift (core func $i "f"))))`

test.each([
  ['exceptions in a core module', THROWS, /core module of it uses exceptions.*-fno-exceptions/],
  ['an encoding of strings', echo('run', 'latin1+utf16'), /latin1\+utf16; use utf8 or utf16/],
  ...['memory0', 'exports0', 'realloc0'].map((name): [string, string, RegExp] => [
    `a function ${name}`,
    echo(name),
    new RegExp(`a name in it cannot be used in the transpiled script, rename it: Identifier '${name}'`),
  ]),
  ['a script of more than 4 MiB', LARGE, /its script has more than 4194304 characters/],
  ['a function arguments', echo('arguments'), /rename it: Binding arguments/],
  [
    'a resource set',
    resource('set'),
    /a name in it becomes Set, which the transpiled script needs for itself: rename it/,
  ],
])('%s', async (_, text, message) => {
  expect(await upload(text)).toMatchObject({
    status: 400,
    body: {
      error: 'malformed',
      message: expect.stringMatching(new RegExp(`^the component cannot be transpiled: .*${message.source}`)) as string,
    },
  })
})

test.each(
  [
    ['map', 'array', 'promise', 'memory0', 'undefined'].map((name): [string, string, string, unknown[], unknown] => [
      `a resource ${name}`,
      resource(name),
      'run',
      [],
      3,
    ]),
    ['undefined', 'map', 'set', 'default'].map((name): [string, string, string, unknown[], unknown] => [
      `a function ${name}`,
      echo(name),
      name,
      ['größe 温度'],
      'größe 温度',
    ]),
    [['strings in utf16', echo('run', 'utf16').replace('1024', '1024'), 'run', ['größe'], 'größe'] as const],
  ].flat(),
)('%s is accepted and runs', async (_, text, name, inputs, result) => {
  const { id, status } = await upload(text)
  expect(status).toBe(200)
  const { body } = await client.post(`/tasks/${id}/invoke`, { function: name, inputs })
  expect(body['results']).toEqual(result)
})
