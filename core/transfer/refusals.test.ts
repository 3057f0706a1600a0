import { expect, it } from 'vitest'
import { readRefusal } from './refusals.ts'

it('reads the message of an error body, and undefined from other bodies', () => {
  expect(readRefusal(Buffer.from('{"errors":[{"code":"DENIED","message":"no"}]}'))).toBe('no')
  const others = ['', 'null', '{}', '{"errors":[]}', '{"errors":[{"message":1}]}']
  expect(others.map((body) => readRefusal(Buffer.from(body)))).toEqual(others.map(() => undefined))
  expect(readRefusal(undefined)).toBeUndefined()
})
