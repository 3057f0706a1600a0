import { expect, test } from 'vitest'
import { UnknownCallers } from './unknown-callers.ts'

function withDropped(limits: { max: number; maxPerAddress: number }) {
  const dropped: string[] = []
  const callers = new UnknownCallers(limits)
  return { callers, dropped, add: (address: string, name: string) => callers.add(address, () => dropped.push(name)) }
}

test('a full address drops its oldest socket, and no other address is affected', () => {
  const { callers, dropped, add } = withDropped({ max: 10, maxPerAddress: 2 })
  add('10.0.0.1', 'a')
  add('10.0.0.2', 'b')
  add('10.0.0.1', 'c')
  add('10.0.0.1', 'd')
  add('10.0.0.1', 'e')
  expect(dropped).toEqual(['a', 'c'])
  expect(callers.size).toBe(3)
})

test('a full process drops its oldest socket', () => {
  const { callers, dropped, add } = withDropped({ max: 2, maxPerAddress: 2 })
  for (const [host, name] of ['a', 'b', 'c'].entries()) add(`10.0.0.${host}`, name)
  expect(dropped).toEqual(['a'])
  expect(callers.size).toBe(2)
})

test('known callers are not counted, and are not dropped', () => {
  const { callers, dropped, add } = withDropped({ max: 2, maxPerAddress: 2 })
  const known = [add('10.0.0.1', 'a'), add('10.0.0.1', 'b')]
  for (const tell of [...known, ...known]) tell()
  expect(callers.size).toBe(0)
  add('10.0.0.1', 'c')
  add('10.0.0.1', 'd')
  expect(dropped).toEqual([])
})
