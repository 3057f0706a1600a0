import wabt from 'wabt'
import { expect, test } from 'vitest'
import { boundFunctionNames } from './function-names.ts'
import { SECTION, readModule } from './module-reader.ts'

async function nameSection(text: string): Promise<Uint8Array> {
  const { buffer } = (await wabt()).parseWat('test.wat', text).toBinary({ write_debug_names: true })
  const section = readModule(buffer, { allowGc: false }).sections.find(({ id }) => id === SECTION.custom)
  return buffer.subarray(section?.contentStart, section?.end)
}

test('names are cut, other characters replaced, and names of locals left out', async () => {
  const given = await nameSection(`(module (func $a/b*c (param $local i32)) (func $${'x'.repeat(1_000)}))`)
  const textOf = (bytes: Uint8Array | undefined) => Buffer.from(bytes ?? []).toString('latin1')
  const shown = textOf(boundFunctionNames(given))
  expect(shown).toContain('a/b*c')
  expect(shown).not.toContain('local')
  expect(shown.match(/x+/)?.[0]).toHaveLength(200)
})

test('the bounded section is a name section itself', async () => {
  const bounded = boundFunctionNames(await nameSection('(module (func $one) (func $two))'))
  expect(boundFunctionNames(bounded ?? new Uint8Array())).toEqual(bounded)
})

test.each([
  ['another custom section', Uint8Array.from([1, 0x61])],
  ['a section that ends too early', Uint8Array.from([4, ...Buffer.from('name'), 1, 100, 1])],
  ['more names than bytes', Uint8Array.from([4, ...Buffer.from('name'), 1, 2, 0xff, 0x01])],
])('%s has no names', (_, content) => {
  expect(boundFunctionNames(content)).toBeUndefined()
})
