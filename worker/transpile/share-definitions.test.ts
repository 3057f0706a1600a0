import { Script } from 'node:vm'
import { describe, expect, test } from 'vitest'
import { shareDefinitions } from './share-definitions.ts'

const scriptOf = (body: string, parameters = 'getCore, imports, instantiateCore = () => 7') =>
  `function instantiate(${parameters}) {\n${body}\n}\nconst _util = {}`

type Instance = Record<string, (...given: number[]) => unknown>
type Instantiate = (...given: unknown[]) => Instance

function evaluated(script: string): Instantiate {
  return new Script(
    `(function () {\n'use strict'\n${script}\nreturn instantiate\n})()`,
  ).runInThisContext() as Instantiate
}

describe('a script whose definitions are shared', () => {
  const STATEFUL = scriptOf(`
    let count = 0
    const seen = new Map(), list = []
    let late
    const log = (...given) => { list.push(given) }
    class Base { static made = 0n; static KIND = { a: 1 }; #id; constructor() { this.#id = ++Base.made } id() { return this.#id } }
    class Derived extends Base { [Symbol.dispose]() { count = -1 } }
    function make() { const one = new Derived(); seen.set(one, count++); log(one); late ??= one.id(); return one }
    const { first, second: other } = imports
    let gen = (function* () { function add() { make(); return [count, seen.size, list.length, late, Base.made, first + other, instantiateCore()] } return { add } })()
    return gen.next().value`)

  test('defines classes and functions once, and gives every instance values of its own', () => {
    const shared = shareDefinitions(STATEFUL)
    expect(shared).not.toBe(STATEFUL)
    const body = shared.slice(shared.indexOf('function instantiate'))
    expect(body).not.toMatch(/class |function make|const log/)
    const instantiate = evaluated(shared)
    for (const turn of [1, 2, 3]) {
      const { add } = instantiate(undefined, { first: turn, second: 5 })
      expect(add?.()).toEqual([1, 1, 1, 1n, 1n, turn + 5, 7])
      expect(add?.()).toEqual([2, 2, 2, 1n, 2n, turn + 5, 7])
    }
  })

  test('does the same as the script itself', () => {
    for (const script of [STATEFUL, shareDefinitions(STATEFUL)]) {
      const { add } = evaluated(script)(undefined, { first: 1, second: 2 }, () => 8)
      expect(add?.()).toEqual([1, 1, 1, 1n, 1n, 3, 8])
    }
  })
})

test.each([
  ['without the function', 'function other() {}'],
  ['whose function is asynchronous', `async ${scriptOf('return 1')}`],
  ['that assigns to a function', scriptOf('function f() {}\nf.count = 1\nreturn f')],
  ['that replaces a function', scriptOf('let g = () => 1\nfunction f() { g = f }\nreturn f')],
  ['that changes a prototype', scriptOf('class A {}\nA.prototype.f = 1\nreturn A')],
  ['whose class extends a value of the instance', scriptOf('const B = imports.b\nclass A extends B {}\nreturn A')],
  ['whose class has a private static field', scriptOf('class A { static #n = 0; next() { return A.#n++ } }\nreturn A')],
  ['whose class has a static block', scriptOf('class A { static { imports.f() } }\nreturn A')],
  ['whose class has a computed name', scriptOf('class A { [imports.name]() {} }\nreturn A')],
  ['that destructures deeply', scriptOf('const { a: { b } } = imports\nreturn b')],
  ['that destructures a list', scriptOf('const [a] = imports\nreturn a')],
  ['whose parameters are destructured', scriptOf('return a', '{ a }')],
  ['that waits', scriptOf('const f = imports.f\nlet gen = (async () => await f())()\nreturn gen')],
  ['that calls what waits', scriptOf('async function f() {}\nlet gen = imports.lift(f)\nreturn gen')],
])('a script %s stays as it is', (_what, script) => {
  expect(shareDefinitions(script)).toBe(script)
})
