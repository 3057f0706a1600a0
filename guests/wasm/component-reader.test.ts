/** Components in the text format, assembled by the tools of the component transpiler. */
import { parse } from '@bytecodealliance/jco-transpile/wasm-tools'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { DEFAULT_MODULE_BOUNDS } from './bounds.ts'
import { examineModule } from './examine.ts'
import { ModuleRefusal } from './module-refusal.ts'

const RECORD = '(type $r (record (field "value" f64) (field "at" (option u64))))'
const CORE = '(core module $m (func (export "f") (param i32) (result i32) local.get 0) (memory (export "memory") 2 10))'
const LIFTED = `${CORE} (core instance $i (instantiate $m))
  (type $t (func (param "x" u32) (result u32))) (func $f (type $t) (canon lift (core func $i "f")))`

async function refusalOf(text: string): Promise<string> {
  const bytes = await parse(text)
  try {
    examineModule(bytes)
    return 'accepted'
  } catch (error) {
    expect(error).toBeInstanceOf(ModuleRefusal)
    return (error as Error).message
  }
}

test('lists exported functions with their types', async () => {
  const bytes = await parse(`(component ${LIFTED} (export "twice" (func $f)))`)
  expect(examineModule(bytes)).toEqual({
    kind: 'component',
    runtime: 'component',
    exports: [{ name: 'twice', kind: 'function', params: ['u32'], results: ['u32'] }],
    imports: [],
  })
})

test('names functions of an exported interface after it, with the types from a nested component', async () => {
  const bytes = await parse(`(component ${LIFTED}
    (component $shim (type $t (func (param "x" u32) (result u32))) (import "f" (func $f (type $t)))
      (export "twice" (func $f) (func (type $t))))
    (instance $api (instantiate $shim (with "f" (func $f)))) (export "skein:math/api@1.0.0" (instance $api)))`)
  expect(examineModule(bytes).exports).toEqual([
    { name: 'skein:math/api@1.0.0#twice', kind: 'function', params: ['u32'], results: ['u32'] },
  ])
})

test('shows records, options, lists, results, variants, enums, flags and tuples as they are written', async () => {
  const bytes = await parse(
    `(component
    (core module $m (func (export "f") (param i32 i32 i32) (result i32) i32.const 0) (memory (export "memory") 1)
      (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 0))
    (core instance $i (instantiate $m)) ${RECORD} (export $rx "reading" (type $r))
    (type $v (variant (case "none") (case "some" s8))) (export $vx "v" (type $v))
    (type $e (enum "a" "b")) (export $ex "e" (type $e)) (type $g (flags "x" "y")) (export $gx "g" (type $g))
    (type $t (func (param "a" (list $rx)) (result (result (tuple $vx $ex $gx char) (error string)))))
    (func $f (type $t) (canon lift (core func $i "f") (memory (core memory $i "memory")) (realloc (core func $i "realloc"))))
    (export "all" (func $f)))`.replace('(param i32 i32 i32)', '(param i32 i32)'),
  )
  const [all] = examineModule(bytes).exports
  expect(all?.params).toEqual(['list<record { value: f64, at: option<u64> }>'])
  expect(all?.results).toEqual([
    'result<tuple<variant { none, some(s8) }, enum { a, b }, flags { x, y }, char>, string>',
  ])
})

const SERVED =
  '(WASI is served in the versions 0.2.x: wasi:cli, wasi:clocks, wasi:filesystem, wasi:http, wasi:io, wasi:random, wasi:sockets; wasi:keyvalue in 0.2.0-draft and 0.2.0-draft2)'

const WITHOUT_ASYNC = 'WASI 0.2 is served, which has no async'
const NOT_THERE = 'WASI 0.2 is served, whose Component Model does not have this'

test.each([
  ['async functions', '(type (func async))', WITHOUT_ASYNC],
  ['stream', '(type (stream u8))', WITHOUT_ASYNC],
  ['future', '(type (future u8))', WITHOUT_ASYNC],
  ['error-context', '(type (func (param "e" error-context)))', WITHOUT_ASYNC],
  ['built-in functions for async', '(core func (canon task.return))', WITHOUT_ASYNC],
  ['built-in functions for async', '(core func (canon context.get i32 0))', WITHOUT_ASYNC],
  ['async functions', '(import "f" (func $f)) (core func (canon lower (func $f) async))', WITHOUT_ASYNC],
  ['map', '(type (map string u8))', NOT_THERE],
  ['lists of fixed length', '(type (list u8 4))', NOT_THERE],
])('the refusal of %s says what is served: %s', async (what, text, served) => {
  expect(await refusalOf(`(component ${text})`)).toContain(`the component uses ${what}; ${served}`)
})

describe('imports', () => {
  const instance = (name: string, functions: string) => `(component (import "${name}" (instance ${functions})))`

  test.each([
    ['wasi:cli/environment@0.2.0', '(export "get-arguments" (func (result (list string))))'],
    ['wasi:cli/environment@0.2.6', '(export "get-arguments" (func (result (list string))))'],
    ['wasi:sockets/tcp-create-socket@0.2.3', '(export "create-tcp-socket" (func))'],
    ['wasi:http/types@0.2.3', '(export "anything" (func))'],
  ])('of %s are supported', async (name, functions) => {
    expect(await refusalOf(instance(name, functions))).toBe('accepted')
  })

  test.each([
    ['wasi:cli/environment@0.3.0', '(export "get-arguments" (func))', `wasi:cli/environment@0.3.0 ${SERVED}`],
    ['wasi:cli/environment@1.0.0', '(export "get-arguments" (func))', `wasi:cli/environment@1.0.0 ${SERVED}`],
    ['wasi:nn/graph@0.2.0', '(export "load" (func))', `wasi:nn/graph@0.2.0 ${SERVED}`],
    ['wasi:cli/environment@0.2.0', '(export "set-arguments" (func))', 'wasi:cli/environment@0.2.0#set-arguments'],
    ['acme:secrets/vault', '', 'acme:secrets/vault'],
  ])('of %s with %s are refused by name', async (name, functions, shown) => {
    expect(await refusalOf(instance(name, functions))).toBe(`the module has unsupported imports: ${shown}`)
  })

  test('of a function, of a resource and of a core module are refused', async () => {
    expect(await refusalOf('(component (import "f" (func)))')).toContain('unsupported imports: f')
    expect(await refusalOf('(component (import "r" (type (sub resource))))')).toContain('unsupported imports: r')
    expect(await refusalOf('(component (import "m" (core module)))')).toContain('passes core modules')
  })
})

describe('bounds', () => {
  test('the memories of all instances count together', async () => {
    const core = '(core module $m (memory 600))'
    const once = `(core instance (instantiate $m))`
    expect(await refusalOf(`(component ${core} ${once})`)).toBe('accepted')
    expect(await refusalOf(`(component ${core} ${once} ${once})`)).toBe(
      'the memories of all instances together start with 1200 pages (78643200 bytes), the memory_limit is 67108864 bytes; set memory_limit to at least 78643200',
    )
  })

  test('instances of nested components count as often as the component is instantiated', async () => {
    const nested = '(component $c (core module $m (memory 600)) (core instance (instantiate $m)))'
    expect(await refusalOf(`(component ${nested} (instance (instantiate $c)) (instance (instantiate $c)))`)).toContain(
      '1200 pages',
    )
  })

  test('components that double their instances at each level are refused before anything is instantiated', async () => {
    let inner = '(component $c0 (core module $m) (core instance (instantiate $m)))'
    for (let level = 1; level < 15; level++) {
      const before = `$c${level - 1}`
      inner = `(component $c${level} ${inner} (instance (instantiate ${before})) (instance (instantiate ${before})))`
    }
    expect(await refusalOf(`(component ${inner} (instance (instantiate $c14)))`)).toContain('more than 1000 times')
  })

  test('types with an exponentially long text are refused', async () => {
    let types = '(type $t0 (tuple u8 u8))'
    for (let level = 1; level < 30; level++) types += `(type $t${level} (tuple $t${level - 1} $t${level - 1}))`
    const shown = `(component ${types} (core module $m (func (export "f") (param i32)) (memory (export "memory") 1)
      (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 0))
      (core instance $i (instantiate $m)) (type $f (func (param "x" $t29)))
      (func $g (type $f) (canon lift (core func $i "f") (memory (core memory $i "memory")) (realloc (core func $i "realloc"))))
      (export "g" (func $g)))`
    expect(await refusalOf(shown)).toContain('takes more than 20000 characters')
  })

  test('every core module is limited like any core module', async () => {
    expect(await refusalOf('(component (core module (memory 1) (memory 1)))')).toContain('2 memories')
    expect(await refusalOf('(component (component (core module (memory 1 2 shared))))')).toContain('shared memory')
    expect(await refusalOf('(component (core module (type (struct))))')).toContain('garbage-collected')
    expect(await refusalOf('(component (core module (table 2000000 funcref)))')).toContain('2000000 entries')
  })
})

test('the reader fails only with a refusal for any bytes', async () => {
  const whole = await parse(`(component ${RECORD} ${LIFTED} (export "twice" (func $f)))`)
  const changes = fc.array(fc.tuple(fc.nat(whole.length - 1), fc.nat(255)), { minLength: 1, maxLength: 6 })
  fc.assert(
    fc.property(changes, fc.nat(whole.length), (edits, length) => {
      const bytes = whole.slice(0, Math.max(8, length))
      for (const [at, byte] of edits) if (at >= 8 && at < bytes.length) bytes[at] = byte
      try {
        examineModule(bytes, DEFAULT_MODULE_BOUNDS)
      } catch (error) {
        if (!(error instanceof ModuleRefusal)) throw error
      }
    }),
    { numRuns: 2_000 },
  )
})
