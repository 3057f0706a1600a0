import { expect, test } from 'vitest'
import { OPTIONS, readOptions } from './options.ts'

const read = (number: number, value: string | Buffer) => readOptions([{ number, value: Buffer.from(value) }])

test('text is read as UTF-8', () => {
  expect(read(OPTIONS.uriPath, 'ü').path).toBe('ü')
  expect(read(OPTIONS.uriQuery, 'a=ü').queries).toEqual(['a=ü'])
})

test.each([OPTIONS.uriPath, OPTIONS.uriQuery])('option %i without a text is malformed', (number) => {
  expect(() => read(number, 'a\0b')).toThrow(expect.objectContaining({ kind: 'malformed' }))
  expect(() => read(number, Buffer.from([0xff]))).toThrow(expect.objectContaining({ kind: 'malformed' }))
})
