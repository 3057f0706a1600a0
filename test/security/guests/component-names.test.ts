/**
 * Names in modules are text that a tenant chooses, and scripts are made of components: no name may ever become code. Core
 * names of any kind run under generated names; names of the component model are refused unless they follow its grammar;
 * and a script that uses what such scripts do not use is refused, should a name ever come through.
 */
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { shareDefinitions } from '#worker/transpile/share-definitions.ts'
import { transpileComponent } from '#guests/transpiler/index.ts'
import { examineModule } from '#guests/wasm/index.ts'
import { checkScript } from '#guests/scripts/index.ts'
import { componentFromText, digestOf, exampleBytes, moduleFromText, startPool } from '../../worker/pool.ts'
import type { TestPool } from '../../worker/pool.ts'
import { componentShapes } from './component-shapes.ts'

let host: TestPool
beforeAll(async () => {
  host = await startPool({ slots: 2, runners: 1 })
})
afterAll(() => host[Symbol.asyncDispose]())

/** Code that nobody could overlook: it would fail the run with this word in the error. */
const CANARY = 'canary'
const CODE = `(()=>{throw new Error("${CANARY}")})()`
const HOSTILE_NAMES = [
  `m'];${CODE}//`,
  `m"];${CODE}//`,
  `m\`];${CODE}//`,
  `m\\'];${CODE}//`,
  `m\\`,
  `'+${CODE}+'`,
  `\${${CODE}}`,
  `*/${CODE}/*`,
  `//${CODE}`,
  `/*${CODE}`,
  `m\n${CODE}\n`,
  `m\r\n${CODE}`,
  `m\u2028${CODE}\u2029${CODE}`,
  `m\0'];${CODE}//`,
  `m: ${CODE}, x`,
  `});${CODE};({`,
  `{{${CODE}}}`,
  `<!--${CODE}`,
  `m\u{1f4a5}\u202e'];${CODE}//`,
  '__proto__',
  'constructor',
  'prototype',
  'then',
  'toString',
  'eval',
  'default',
  '',
  ' ',
  'n0',
]

/** A string of the text format with every byte escaped. */
function quoted(name: string): string {
  return `"${[...Buffer.from(name)].map((byte) => `\\${byte.toString(16).padStart(2, '0')}`).join('')}"`
}

/** Every name that a component's core modules are linked by is `name`; its functions return their text, and 7. */
function linkedBy(name: string): string {
  const n = quoted(name)
  return `(component
    (@custom ${n} "name")
    (component $inner
      (core module $a (@custom ${n} "name") (memory (export ${n}) 1)) (core instance $ia (instantiate $a))
      (alias core export $ia ${n} (core memory $memory))
      (core instance $box (export ${n} (memory $memory)))
      (core module $b (import ${n} ${n} (memory 1)) (global $end (mut i32) (i32.const 1024))
        (func (export ${n}) (param i32 i32 i32 i32) (result i32) (local $at i32)
          (local.set $at (i32.and (i32.add (global.get $end) (i32.const 7)) (i32.const -8)))
          (global.set $end (i32.add (local.get $at) (local.get 3))) (local.get $at)))
      (core instance $ib (instantiate $b (with ${n} (instance $box))))
      (core module $t (table (export ${n}) 1 funcref)) (core instance $it (instantiate $t))
      (core module $g (global (export ${n}) i32 (i32.const 7))) (core instance $ig (instantiate $g))
      (core module $d (import ${n} ${n} (table 1 funcref)) (func (export ${n}) (param i32)))
      (core instance $id (instantiate $d (with ${n} (instance $it))))
      (core module $e (import ${n} ${n} (global $g i32)) (func (export ${n}) (result i32) (global.get $g)))
      (core instance $ie (instantiate $e (with ${n} (instance $ig))))
      (core module $c (import ${n} ${n} (memory 1)) (func (export ${n}) (param i32 i32) (result i32)
        (i32.store (i32.const 0) (local.get 0)) (i32.store (i32.const 4) (local.get 1)) (i32.const 0)))
      (core instance $ic (instantiate $c (with ${n} (instance $ia))))
      (func (export "echo") (param "text" string) (result string) (canon lift (core func $ic ${n})
        (memory $memory) (realloc (core func $ib ${n})) (post-return (core func $id ${n}))))
      (func (export "seven") (result u32) (canon lift (core func $ie ${n}))))
    (instance $i (instantiate $inner))
    (export "echo" (func $i "echo")) (export "seven" (func $i "seven")))`
}

function scriptOf(bytes: Uint8Array): string {
  const digest = digestOf(bytes).slice('sha256:'.length)
  const folder = readdirSync(host.componentsFolder).find((name) => name.startsWith(digest)) ?? ''
  return readFileSync(join(host.componentsFolder, folder, 'component.js'), 'utf8')
}

describe('core names of a component', () => {
  test.each(HOSTILE_NAMES)('such as %j link like any other, and none is in the script', async (name) => {
    const bytes = await componentFromText(linkedBy(name))
    expect(await host.run(bytes, { functionName: 'echo', inputs: ['größe'] })).toMatchObject({
      state: 'completed',
      results: 'größe',
    })
    expect(await host.run(bytes, { functionName: 'seven' })).toMatchObject({ state: 'completed', results: 7 })
    const script = scriptOf(bytes)
    expect(script).not.toContain(CANARY)
    // Imports and exports of core modules have generated names, whatever they were called.
    const taken = [...script.matchAll(/\bexports\d+(\.[\w$]+|\[[^\]]*\])/g)].map(([, member]) => member)
    expect(taken.length).toBeGreaterThan(4)
    for (const member of taken) expect(member).toMatch(/^\.n\d+$/)
  })
})

/** Where a component has names of the component model, each a component around one such name. */
const CORE = `(core module $m (func (export "f") (param i32) (result i32) (local.get 0))) (core instance $i (instantiate $m))`
const FUNCTION = `${CORE} (func $f (param "x" u32) (result u32) (canon lift (core func $i "f")))`
const typed = (type: string) => `(component (type $t ${type}))`
const PLACES: Record<string, (name: string) => string> = {
  'an exported function': (name) => `(component ${FUNCTION} (export ${name} (func $f)))`,
  'an exported instance': (name) => `(component (instance $i) (export ${name} (instance $i)))`,
  'an exported type': (name) => `(component (type $t (enum "a")) (export ${name} (type $t)))`,
  'an export of an instance': (name) => `(component ${FUNCTION} (instance (export ${name} (func $f))))`,
  'an argument of an instance': (name) =>
    `(component ${FUNCTION} (component $c) (instance (instantiate $c (with ${name} (func $f)))))`,
  'an imported function': (name) => `(component (import ${name} (func)))`,
  'an imported instance': (name) => `(component (import ${name} (instance)))`,
  'an imported type': (name) => `(component (import ${name} (type (sub resource))))`,
  'a function of an imported instance': (name) =>
    `(component (import "wasi:http/types@0.2.3" (instance (export ${name} (func)))))`,
  'a resource of an imported instance': (name) =>
    `(component (import "wasi:http/types@0.2.3" (instance (export ${name} (type (sub resource))))))`,
  'an import of a component type': (name) => typed(`(component (import ${name} (func)))`),
  'an export of an instance type': (name) => typed(`(instance (export ${name} (func)))`),
  'an export of a nested component': (name) => `(component (component ${FUNCTION} (export ${name} (func $f))))`,
  'a parameter': (name) => typed(`(func (param ${name} u32))`),
  'a field': (name) => typed(`(record (field ${name} u32))`),
  'a case of a variant': (name) => typed(`(variant (case ${name}))`),
  'a case of an enum': (name) => typed(`(enum ${name})`),
  'a flag': (name) => typed(`(flags ${name})`),
}
/** Not identifiers of the script. */
const MAY_BE_CONSTRUCTOR = new Set(['an exported type', 'a case of a variant'])
const PLAIN_LABELS = ['prototype', 'then', 'eval', 'default', 'n0']
const MALFORMED_LABELS = [
  ...HOSTILE_NAMES.filter((name) => !PLAIN_LABELS.includes(name)),
  `[method]a'.${CODE}`,
  `[constructor]${CODE}`,
  `[async]f`,
  `a:b/c@1.0.0'];${CODE}//`,
  `a:b'];${CODE}//`,
  `wasi:http/types@0.2.3\u2028${CODE}`,
  `url=<https://acme.example/'];${CODE}//>`,
  `unlocked-dep=<a:b/c'];${CODE}//>`,
  'integrity=<sha256-AAAA>',
  'under_score',
  'Title-Case',
  '-a',
  'a-',
  'a--b',
  '1a',
  'größe',
]

describe('names of the component model', () => {
  test.each(Object.keys(PLACES))('of %s are refused at upload unless they follow its grammar', async (place) => {
    const around = PLACES[place] as (name: string) => string
    for (const name of MALFORMED_LABELS) {
      if (name === 'constructor' && MAY_BE_CONSTRUCTOR.has(place)) continue
      const bytes = await componentFromText(around(quoted(name)))
      expect(() => examineModule(bytes), JSON.stringify(name)).toThrow(
        expect.objectContaining({
          kind: 'malformed',
          message: expect.stringMatching(
            /^"[^\p{C}\p{Zl}\p{Zp}]*" is (not a valid name of .*; use kebab case|not accepted as a name)/u,
          ) as string,
        }),
      )
    }
  })

  test.each(Object.keys(PLACES))('of %s are refused by a worker too', async (place) => {
    const around = PLACES[place] as (name: string) => string
    await expect(host.run(await componentFromText(around(quoted(`a'];${CODE}//`))))).rejects.toMatchObject({
      kind: 'malformed',
      message: expect.stringContaining('is not a valid name of') as string,
    })
  })

  test('are refused if JavaScript would treat them as another name', async () => {
    const named = (name: string) =>
      `(component (import "wasi:http/types@0.2.3" (instance (export ${quoted(name)} (func)))))`
    for (const name of [
      '[static]sensor.name',
      '[static]sensor.prototype',
      '[method]sensor.constructor',
      'CONSTRUCTOR',
    ]) {
      const bytes = await componentFromText(named(name))
      expect(() => examineModule(bytes), name).toThrow('JavaScript, the target of the transpiler, reserves it')
    }
    const bytes = await componentFromText(`(component ${FUNCTION} (export "arguments" (func $f)))`)
    await expect(host.run(bytes)).rejects.toMatchObject({
      kind: 'malformed',
      message: expect.stringContaining('cannot be used in the transpiled script') as string,
    })
  })

  test('of types and of cases of variants may be a word that is forbidden for functions', async () => {
    for (const place of MAY_BE_CONSTRUCTOR) {
      const around = PLACES[place] as (name: string) => string
      expect(examineModule(await componentFromText(around('"constructor"'))).kind, place).toBe('component')
    }
  })

  test('may be words of JavaScript', async () => {
    const words =
      'await class console default delete enum eval exports function global-this imports instantiate let new'
        .concat(
          ' null object process prototype static then this to-string try undefined value-of void web-assembly yield',
        )
        .split(' ')
    const fields = words.map((word) => `(field "${word}" u8)`).join(' ')
    const exported = words.map((word) => `(export "${word}" (func $f))`).join(' ')
    const bytes = await componentFromText(`(component ${FUNCTION} ${exported})`)
    for (const word of words) {
      expect(await host.run(bytes, { functionName: word, inputs: [5] })).toMatchObject({
        state: 'completed',
        results: 5,
      })
    }
    const record = await componentFromText(`(component
      (core module $m (memory (export "memory") 1) (func (export "f") (param i32) (result i32) (local.get 0))
        (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024)))
      (core instance $i (instantiate $m))
      (import "wasi:http/types@0.2.3" (instance $x (type $d (record ${fields})) (export "t" (type (eq $d)))))
      (alias export $x "t" (type $t))
      (func $f (param "default" $t) (result $t) (canon lift (core func $i "f")
        (memory (core memory $i "memory")) (realloc (core func $i "realloc"))))
      (export "run" (func $f)))`)
    const value = Object.fromEntries(words.map((word, index) => [word, index]))
    expect(await host.run(record, { inputs: [value] })).toMatchObject({ state: 'completed', results: value })
  })
})

describe('names in a core module', () => {
  test.each(HOSTILE_NAMES)('such as %j are names only', async (name) => {
    const n = quoted(name)
    const bytes = await moduleFromText(`(module (func (export ${n}) (result i32) (i32.const 7)))`)
    expect(await host.run(bytes, name === '' ? {} : { functionName: name })).toMatchObject({
      state: 'completed',
      results: [7],
    })
    for (const text of [`(import ${n} "f" (func))`, `(import "wasi_snapshot_preview1" ${n} (func))`]) {
      const importing = await moduleFromText(`(module ${text} (func (export "run")))`)
      expect(() => examineModule(importing)).toThrow('the module has unsupported imports')
      expect(await host.run(importing)).toMatchObject({ state: 'failed', reason: 'module_invalid' })
    }
  })
})

describe('the check of transpiled scripts', () => {
  test('accepts the output of the transpiler for every type, encoding, resource and composition', async () => {
    for (const [shape, text] of componentShapes()) {
      const component = await componentFromText(text)
      const { script } = await transpileComponent(component)
      expect(() => checkScript(script), shape).not.toThrow()
      const { script: hollow } = await transpileComponent(component, { isHollow: true })
      expect(hollow, `${shape}, without code`).toBe(script)
      const { script: shared } = await transpileComponent(component, { rewrite: shareDefinitions })
      expect(() => checkScript(shared), `${shape}, with shared definitions`).not.toThrow()
      expect(shared, `${shape}: its definitions can be shared`).not.toBe(script)
    }
  })

  test('refuses a script in which a name became code', async () => {
    const { script } = await transpileComponent(await componentFromText(linkedBy('memory')))
    const at = /exports\d+\.n\d+;/
    expect(script).toMatch(at)
    const ATTACKS = [
      'process.exit()',
      'globalThis.process.kill(1)',
      'globalThis.x = 1',
      'globalThis["process"]',
      'require("fs")',
      'import("node:fs")',
      'eval("1")',
      'Function("return 1")()',
      '(() => {}).constructor("return 1")()',
      '[]["constructor"]',
      'const { constructor: x } = []',
      '({})["con" + "structor"]',
      '({})[`constructor`]',
      '({}).__proto__',
      'fetch("http://127.0.0.1")',
      'new Worker("x")',
      'String.raw`x`',
      '/x/.exec("x")',
      'debugger',
      'Object.getPrototypeOf(memory0)',
      'Object.keys = 1',
      'Uint8Array["from"]',
      'WebAssembly.compile(memory0)',
      'undeclared',
      'undeclared = 1',
      '{ let process } process',
      '((x = process) => { var process })()',
      '})(); process.exit(); (function () {',
      'for (const x in memory0) x',
    ]
    for (const attack of ATTACKS) {
      expect(() => checkScript(script.replace(at, (member) => `${member} ${attack};`)), attack).toThrow(
        expect.objectContaining({ kind: 'malformed' }),
      )
    }
    expect(() => checkScript(script.replace(at, (member) => `${member} { let process; process = 1 }`))).not.toThrow()
    expect(() => checkScript(script.replace("'use strict'", ''))).toThrow('not in strict mode')
  })
})

describe('the length of names', () => {
  const LONGEST = 'n'.repeat(1024)
  const exportedAs = (name: string) => moduleFromText(`(module (func (export ${quoted(name)})))`)

  test('is limited in core modules and components', async () => {
    expect(examineModule(await exportedAs(LONGEST)).exports).toMatchObject([{ name: LONGEST }])
    const tooLong = [
      await exportedAs(`${LONGEST}n`),
      await moduleFromText(`(module (import ${quoted(`${LONGEST}n`)} "f" (func)))`),
      await componentFromText(linkedBy(`${LONGEST}n`)),
      await componentFromText(`(component ${FUNCTION} (export ${quoted(`${LONGEST}n`)} (func $f)))`),
      await componentFromText(typed(`(record (field ${quoted(`${LONGEST}n`)} u8))`)),
    ]
    for (const bytes of tooLong) {
      expect(() => examineModule(bytes)).toThrow('has 1025 bytes, at most 1024 are accepted')
    }
  })

  test('is limited for all of them together', async () => {
    const exports = (count: number) =>
      Array.from({ length: count }, (_, index) => `(export ${quoted(`${index}${'n'.repeat(996)}`)} (func $f))`).join(
        ' ',
      )
    const module = async (count: number) => examineModule(await moduleFromText(`(module (func $f) ${exports(count)})`))
    expect((await module(240)).exports).toHaveLength(240)
    await expect(module(260)).rejects.toThrow('take more than 262144 bytes as JSON')
    // A record of 900 fields in each of 200 parameters: a file of some kilobytes.
    const fields = Array.from({ length: 900 }, (_, index) => `(field "field-${index}" u8)`).join(' ')
    const params = Array.from({ length: 200 }, (_, index) => `(param "p${index}" $t)`).join(' ')
    const shared = await componentFromText(`(component
      (import "wasi:http/types@0.2.3" (instance $x (type $d (record ${fields})) (export "t" (type (eq $d)))))
      (alias export $x "t" (type $t)) (core module $m (memory (export "memory") 1) (func (export "f") (param i32))
        (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024)))
      (core instance $i (instantiate $m)) (func $f ${params} (canon lift (core func $i "f")
        (memory (core memory $i "memory")) (realloc (core func $i "realloc"))))
      (export "run" (func $f)))`)
    expect(shared.length).toBeLessThan(32_768)
    expect(() => examineModule(shared)).toThrow('take more than 262144 bytes as JSON')
  })
})

test('an ordinary module is examined as before', () => {
  expect(examineModule(exampleBytes('add')).exports).toHaveLength(1)
})
