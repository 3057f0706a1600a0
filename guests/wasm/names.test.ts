/** Names as encoded in a file: a length and UTF-8. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { leb128 } from '#core/bytes/index.ts'
import { ByteCursor } from './byte-cursor.ts'
import { ModuleRefusal } from './module-refusal.ts'
import {
  MAX_NAME_BYTES,
  readBoundedName,
  readExternNameText,
  readCaseLabel,
  readLabel,
  requireUsableName,
} from './names.ts'

function cursorOf(name: string): ByteCursor {
  const bytes = new TextEncoder().encode(name)
  return new ByteCursor(Uint8Array.from([...leb128(bytes.length), ...bytes]))
}

describe('the name of an import or export of a component', () => {
  test.each([
    'a',
    'get-value',
    'is-XML-2',
    'a1-2b-3',
    'URL',
    '[constructor]output-stream',
    '[method]output-stream.blocking-write-and-flush',
    '[static]incoming-body.finish',
    'wasi:cli/run@0.2.3',
    'wasi:http/types@0.2.0-rc-2023-11-10+build.1',
    'my-company:the-package/an-interface',
  ])('may be %s', (name) => {
    expect(readExternNameText(cursorOf(name))).toBe(name)
  })

  test.each([
    '',
    '1a',
    'a--b',
    'a-',
    '-a',
    'aB',
    'a-Bc',
    'a_b',
    'a b',
    'a.b',
    'a\n',
    '[method]a',
    '[method]a.b.c',
    '[method].b',
    '[constructor]',
    '[constructor]a.b',
    '[other]a',
    '[method][static]a.b',
    'wasi:cli',
    'wasi:cli/run@',
    'wasi:cli/run@1',
    'wasi:cli/run@1.0.0@1.0.0',
    'wasi:cli/run/x',
    'a:b:c/d',
    'Wasi:cli/run',
    'wasi:CLI/run',
    ':cli/run',
    "wasi:cli/run@1.0.0-'",
    'unlocked-dep=<a:b/c>',
  ])('must not be %j', (name) => {
    expect(() => readExternNameText(cursorOf(name))).toThrow('is not a valid name of an import or export')
  })

  test.each([
    'constructor',
    'CONSTRUCTOR',
    '[method]a.constructor',
    '[constructor]constructor',
    '[static]a.name',
    '[static]a.length',
  ])('must not be %s, which JavaScript reserves', (name) => {
    expect(() => requireUsableName(readExternNameText(cursorOf(name)))).toThrow('reserves it')
  })
})

test('the name of a field may be a label and nothing else', () => {
  expect(readLabel(cursorOf('max-value'), 'a field')).toBe('max-value')
  for (const name of ['a.b', '[method]a.b', 'a:b/c', 'aB']) {
    expect(() => readLabel(cursorOf(name), 'a field')).toThrow('is not a valid name of a field')
  }
  expect(() => readLabel(cursorOf('constructor'), 'a field')).toThrow('reserves it')
  expect(readCaseLabel(cursorOf('constructor'), 'a case')).toBe('constructor')
})

test('a name of the maximum length is checked quickly, independent of its content', () => {
  const parts = ['-1', '-a', 'a', '1', '.', '-', ':', '/', '@', '[', 'A-', '1.', '0.0-']
  for (const part of parts) {
    for (const end of ['', '!', '-']) {
      const name = `a${part.repeat(Math.floor((MAX_NAME_BYTES - 2) / part.length))}${end}`
      for (const read of [() => readExternNameText(cursorOf(name)), () => readLabel(cursorOf(name), 'a field')]) {
        try {
          expect(read()).toBe(name)
        } catch (error) {
          expect(error).toBeInstanceOf(ModuleRefusal)
        }
      }
    }
  }
})

test('a name that is too long is rejected before it is decoded', () => {
  const text = 'n'.repeat(MAX_NAME_BYTES)
  expect(readBoundedName(cursorOf(text), 'an export')).toBe(text)
  expect(() => readBoundedName(cursorOf(`${text}n`), 'an export')).toThrow(
    'the name of an export at byte 0 has 1025 bytes, at most 1024 are accepted',
  )
  // Two bytes each.
  expect(() => readBoundedName(cursorOf('ß'.repeat(513)), 'an export')).toThrow('has 1026 bytes')
})

test('a name of any characters is a label or rejected with a message that is safe to print', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 200 }), (name) => {
      try {
        expect(readLabel(cursorOf(name), 'a field')).toMatch(/^[0-9A-Za-z-]+$/)
      } catch (error) {
        expect(error).toBeInstanceOf(ModuleRefusal)
        expect((error as Error).message).toMatch(/^[^\p{C}\p{Zl}\p{Zp}]+$/u)
      }
    }),
    { numRuns: 2_000 },
  )
})
