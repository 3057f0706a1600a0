import fc from 'fast-check'
import { expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { parseRouteName, routeFromName } from './route-name.ts'

const reserved = new Set(['users', 'channels'])

test('a route generated from any name is valid', () => {
  fc.assert(fc.property(fc.string(), (name) => parseRouteName(routeFromName(name), 'route', reserved) !== ''))
})

test('a route that looks like a UUID, shadows the API or contains other characters is rejected', () => {
  for (const route of [newId(), 'users', 'Channels', '1st', 'a b', 'ä', '', 'a'.repeat(37), 'a/b', 'a.b']) {
    expect(() => parseRouteName(route, 'alias', reserved), route).toThrow(/^alias /)
  }
  expect(parseRouteName('Factory_1-north', 'alias', reserved)).toBe('Factory_1-north')
})
