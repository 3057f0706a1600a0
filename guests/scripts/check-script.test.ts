/** Small scripts; test/security/guests/component-names.test.ts checks real output of the transpiler. */
import { describe, expect, test } from 'vitest'
import { checkScript } from './check-script.ts'

const wrapped = (body: string) => `(function () {\n'use strict'\n${body}\nreturn instantiate\n})()`
const withFunction = (body: string) => wrapped(`function instantiate(getCoreModule, imports) {\n${body}\n}`)

describe('a script is accepted', () => {
  test.each([
    ['with globals that scripts use', 'return new Uint8Array(Math.max(1, Object.keys(imports).length))'],
    [
      'with names of its own, whatever they are',
      'const process = imports.x; function require() { return process } return require()',
    ],
    ['with patterns', 'const { a: [b = 1, ...c], ...d } = imports; return [b, c, d]'],
    [
      'with classes',
      'class A extends Error { #b = 1; constructor(c) { super(c) } get b() { return this.#b } } return new A(new.target)',
    ],
    [
      'with loops',
      'let n = 0; for (const x of imports.list) n += x; a: do { n--; if (n < 3) break a } while (n); return n',
    ],
    ['with `var` that is used before it', 'n = 1; { var n } return n'],
    ['with `arguments` of a function', 'return [...arguments].slice(1)'],
    ['that asks whether it is debugged', 'return globalThis?.process?.env?.JCO_DEBUG'],
  ])('%s', (_, body) => {
    expect(() => checkScript(withFunction(body))).not.toThrow()
  })
})

describe('a script is refused', () => {
  test.each([
    ['process.exit', 'process.exit()'],
    ['process', 'return process'],
    ['globalThis.process', 'globalThis.process'],
    ['globalThis.process.env', 'globalThis.process.env'],
    ['globalThis', 'return globalThis'],
    ['a computed property of globalThis', 'globalThis["process"]'],
    ['a computed property of Object', 'Object["keys"]'],
    ['Object.getPrototypeOf', 'Object.getPrototypeOf(imports)'],
    ['Object', 'const O = Object'],
    ['eval', 'eval("1")'],
    ['Function', 'new Function("1")'],
    ['ImportExpression', 'import("x")'],
    ['TaggedTemplateExpression', 'imports.x`1`'],
    ['DebuggerStatement', 'debugger'],
    ['ForInStatement', 'for (const x in imports) x'],
    ['a regular expression', '/x/'],
    ['the property constructor', 'imports.constructor'],
    ['the property constructor', 'imports["constructor"]'],
    ['the property constructor', 'const { constructor } = imports'],
    ['the property constructor', 'let x; ({ "constructor": x } = imports)'],
    ['the property __proto__', 'imports.__proto__ = {}'],
    ['the property __proto__', 'return { __proto__: imports }'],
    ['a property computed from text', 'imports["con" + "structor"]'],
    ['a property computed by TemplateLiteral', 'imports[`constructor`]'],
    ['a property computed by CallExpression', 'imports[getCoreModule()]'],
    ['an assignment to what a global holds', 'Object.keys = 1'],
    ['an assignment to Uint8Array', 'Uint8Array = 1'],
    ['an assignment to process', 'for (process of []);'],
    ['process', '{ const process = 1 } process'],
    ['process', 'for (const process of []); process'],
    ['process', 'try {} catch (process) {} process'],
    ['process', 'switch (1) { case 1: let process } process'],
    ['process', '(function process() {}); process'],
    ['process', '(class process {}); process'],
    ['process', 'function f() { var process } process'],
    ['process', '((x = process) => { var process })()'],
  ])('that uses %s: %s', (what, body) => {
    const script = withFunction(body)
    expect(() => checkScript(script)).toThrow(`its script uses ${what}, which scripts of components do not`)
  })

  test.each([
    ['makes', 'Set', 'new Set()'],
    ['calls a function of', 'Array', 'Array.isArray([])'],
  ])('that declares a name and %s the global %s', (_, name, use) => {
    const script = withFunction(`const x = ${use}; class ${name} {} return [x, ${name}.prototype]`)
    expect(() => checkScript(script)).toThrow(
      `becomes ${name}, which the transpiled script needs for itself: rename it`,
    )
    expect(() => checkScript(withFunction(`class ${name} {} return ${name}.prototype`))).not.toThrow()
  })

  test.each([
    ['is not one function that is called', `${wrapped('')}; 1`],
    ['is not one function that is called', `1, ${wrapped('')}`],
    ['is not one function that is called', '(() => { "use strict" })()'],
    ['is not one function that is called', '(async function () { "use strict" })()'],
    ['is not one function that is called', ''],
    ['is not in strict mode', '(function () { return 1 })()'],
    ['cannot be used in the transpiled script', '(function () { "use strict"; let a; let a })()'],
    ['cannot be used in the transpiled script', `(function () { 'use strict'; ${'['.repeat(100_000)} })()`],
    ['more than 4194304 characters', ' '.repeat(4 * 1024 * 1024 + 1)],
  ])('that %s', (sentence: string, script: string) => {
    expect(() => checkScript(script)).toThrow(
      expect.objectContaining({ kind: 'malformed', message: expect.stringContaining(sentence) as string }),
    )
  })
})
