import fc from 'fast-check'
import { expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { requireRoute, routeFromName } from './route-name.ts'

const reserved = new Set(['users', 'channels'])

test('a route made from any name is a valid route', () => {
  fc.assert(fc.property(fc.string(), (name) => requireRoute(routeFromName(name), 'route', reserved) !== ''))
})

test('a route never looks like a UUID, shadows the API or holds other signs', () => {
  for (const route of [newId(), 'users', 'Channels', '1st', 'a b', 'ä', '', 'a'.repeat(37), 'a/b', 'a.b']) {
    expect(() => requireRoute(route, 'alias', reserved), route).toThrow(/^alias /)
  }
  expect(requireRoute('Factory_1-north', 'alias', reserved)).toBe('Factory_1-north')
})
