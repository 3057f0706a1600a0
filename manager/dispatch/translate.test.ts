import { create } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { RunResultSchema, WireTaskState } from '#proto/index.ts'
import { fromResult } from './translate.ts'

const LIMIT_BYTES = 256 * 1024

const resultOf = (text: string) =>
  create(RunResultSchema, { state: WireTaskState.COMPLETED, resultsJson: JSON.stringify(text) })

test('a result is limited in bytes, whatever its letters are', () => {
  const quotes = 2
  for (const letter of ['a', 'Ж', '水']) {
    const count = Math.floor((LIMIT_BYTES - quotes) / Buffer.byteLength(letter))
    expect(fromResult(resultOf(letter.repeat(count))).results).toHaveLength(count + quotes)
    expect(() => fromResult(resultOf(letter.repeat(count + 1)))).toThrow(
      expect.objectContaining({ kind: 'too_large' }) as Error,
    )
  }
})
