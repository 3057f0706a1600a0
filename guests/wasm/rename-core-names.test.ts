/** Components in the text format, with core names of any characters. */
import { parse } from '@bytecodealliance/jco-transpile/wasm-tools'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { ModuleRefusal, describeComponent, readComponent, readModule, renameCoreNames } from './index.ts'

/** A string of the text format with every byte escaped. */
function quoted(name: string): string {
  return `"${[...Buffer.from(name)].map((byte) => `\\${byte.toString(16).padStart(2, '0')}`).join('')}"`
}

/** A memory, a function and a module that imports both, linked through an alias and its own instance, and nested. */
function linked(memory: string, func: string, argument: string): string {
  const [m, f, a] = [quoted(memory), quoted(func), quoted(argument)]
  return `(component (component $c (@custom ${m} "left out")
    (core module $m (@custom ${f} "left out") (memory (export ${m}) 1) (func (export ${f}) (param i32) (result i32) (local.get 0)))
    (core instance $i (instantiate $m)) (alias core export $i ${f} (core func $f))
    (core instance $j (export ${f} (func $f)) (export ${m} (memory $i ${m})))
    (core module $n (import ${a} ${f} (func $f (param i32) (result i32))) (import ${a} ${m} (memory 1)) (export ${f} (func $f)))
    (core instance $k (instantiate $n (with ${a} (instance $j))))
    (func (export "run") (param "x" u32) (result u32) (canon lift (core func $k ${f}))))
    (instance $i (instantiate $c)) (export "run" (func $i "run")))`
}

/** Names of all core modules in their order. */
function coreNames(bytes: Uint8Array): string[] {
  return readComponent(bytes).coreModules.flatMap((module) => {
    return readModule(module, { allowGc: true }).names.map(({ name }) => name)
  })
}

/** Replaces each name by the index of its first occurrence. */
function pattern(names: string[]): number[] {
  return names.map((name) => names.indexOf(name))
}

test('core names become n0, n1 and so on; equal names stay equal, different ones different', async () => {
  const bytes = await parse(linked('memory', "f'];//", 'n0'))
  expect(coreNames(bytes)).toEqual(['memory', "f'];//", 'n0', "f'];//", 'n0', 'memory', "f'];//"])
  expect(coreNames(renameCoreNames(bytes))).toEqual(['n0', 'n1', 'n2', 'n1', 'n2', 'n0', 'n1'])
})

test('the rest of the component is unchanged for any core names', async () => {
  const distinct = fc.uniqueArray(fc.string({ unit: 'binary', maxLength: 300 }), { minLength: 3, maxLength: 3 })
  await fc.assert(
    fc.asyncProperty(distinct, async ([memory = '', func = '', argument = '']) => {
      const bytes = await parse(linked(memory, func, argument))
      const renamed = renameCoreNames(bytes)
      expect(pattern(coreNames(renamed))).toEqual(pattern(coreNames(bytes)))
      for (const name of coreNames(renamed)) expect(name).toMatch(/^n\d$/)
      expect(describeComponent(readComponent(renamed))).toEqual(describeComponent(readComponent(bytes)))
      expect(Buffer.from(renamed).includes('left out')).toBe(false)
      // Renaming is idempotent.
      expect(renameCoreNames(renamed)).toEqual(renamed)
    }),
    { numRuns: 200 },
  )
})

test('a damaged component is rejected, or every core name is replaced', async () => {
  const whole = await parse(linked('memory', 'f', 'a'))
  const changes = fc.array(fc.tuple(fc.nat(whole.length - 1), fc.nat(255)), { minLength: 1, maxLength: 4 })
  fc.assert(
    fc.property(changes, (edits) => {
      const bytes = whole.slice()
      for (const [at, byte] of edits) if (at >= 8) bytes[at] = byte
      let renamed: Uint8Array
      try {
        renamed = renameCoreNames(bytes)
      } catch (error) {
        if (error instanceof ModuleRefusal) return
        throw error
      }
      for (const name of coreNames(renamed)) expect(name).toMatch(/^n\d+$/)
    }),
    { numRuns: 3_000 },
  )
})
