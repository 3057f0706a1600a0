import { describe, expect, it } from 'vitest'
import { inputsOf, list, parseJson, plainText } from './values.ts'
import type { Given } from './values.ts'

const SERIAL = '9007199254740993'

describe('integers above 2^53', () => {
  it('keep their digits in a JSON argument', () => {
    const text = `{"metadata":{"serial":${SERIAL},"deep":[18446744073709551615,1]}}`
    expect(JSON.stringify(parseJson(text, 'client'))).toBe(text)
  })

  it('keep their digits in inputs, of either form', () => {
    expect(JSON.stringify(inputsOf(`[1,[${SERIAL}]]`, '--inputs'))).toBe(`[1,[${SERIAL}]]`)
    expect(inputsOf(`1,${SERIAL}`, '--inputs')).toEqual([1, SERIAL])
  })

  it('keep their digits in lists and in what is shown', () => {
    const given = { args: { ids: `[${SERIAL},1]` } } as Partial<Given> as Given
    expect(list(given, 'ids')).toEqual([SERIAL, '1'])
    expect(plainText(parseJson(`{"a":${SERIAL}}`, 'x'))).toBe(`{"a":${SERIAL}}`)
  })
})
