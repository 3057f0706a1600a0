import fc from 'fast-check'
import { expect, test } from 'vitest'
import { SCOPE_ENTITY_TYPES, SCOPE_OPERATIONS, createScopeSet } from './scopes.ts'
import type { Scope } from './scopes.ts'

const aScope = (fields: Partial<Scope>): Scope => ({
  type: 'clients',
  operation: 'read',
  domainKey: 1,
  entity: 'any',
  ...fields,
})
const one = (key: number) => ({ key, id: `id of ${key}` })

test('a scope covers only its type, its operation, its domain and its entity', () => {
  const scope = createScopeSet([aScope({ entity: one(7) })])
  expect(scope.covers('clients', 'read', 1, 7)).toBe(true)
  expect(scope.covers('clients', 'read', 1, 8)).toBe(false)
  expect(scope.covers('clients', 'read', 2, 7)).toBe(false)
  expect(scope.covers('clients', 'update', 1, 7)).toBe(false)
  expect(scope.covers('channels', 'read', 1, 7)).toBe(false)
  expect(scope.coversAll('clients', 'read', 1)).toBe(false)
  expect([scope.reaches(1), scope.reaches(2)]).toEqual([true, false])
})

test('a scope for any entity covers its whole domain, and a scope without a domain covers all domains', () => {
  expect(createScopeSet([aScope({})]).coversAll('clients', 'read', 1)).toBe(true)
  expect(createScopeSet([aScope({})]).coversAll('clients', 'read', undefined)).toBe(false)
  const everywhere = createScopeSet([aScope({ type: 'messages', operation: 'publish', domainKey: undefined })])
  expect(everywhere.covers('messages', 'publish', 5, 9)).toBe(true)
  expect(everywhere.reaches(5)).toBe(true)
})

test('a scope on users covers no domain, and a scope on domains covers those that it names', () => {
  const users = createScopeSet([aScope({ type: 'users', domainKey: undefined })])
  expect(users.reaches(1)).toBe(false)
  expect(users.coversUser('read', 'any user')).toBe(true)
  const self = createScopeSet([aScope({ type: 'users', domainKey: undefined, entity: one(3) })])
  expect([self.coversUser('read', 'id of 3'), self.coversUser('read', 'id of 4')]).toEqual([true, false])
  const domain = createScopeSet([aScope({ type: 'domains', domainKey: undefined, entity: one(1) })])
  expect([domain.reaches(1), domain.reaches(2)]).toEqual([true, false])
  const named = createScopeSet([aScope({ type: 'domains', operation: 'list', domainKey: 4 })])
  expect([named.reaches(4), named.reaches(1)]).toEqual([true, false])
  expect(named.keysFor('domains', 'list', undefined)).toEqual([4])
})

test('the list of keys contains exactly the covered entities, for any scopes', () => {
  const scopes = fc.array(
    fc.record({
      type: fc.constantFrom(...SCOPE_ENTITY_TYPES.filter((type) => type !== 'domains' && type !== 'users')),
      operation: fc.constantFrom(...SCOPE_OPERATIONS),
      domainKey: fc.option(fc.integer({ min: 1, max: 3 }), { nil: undefined }),
      entity: fc.oneof(fc.constant('any' as const), fc.integer({ min: 10, max: 14 }).map(one)),
    }),
    { maxLength: 12 },
  )
  fc.assert(
    fc.property(scopes, fc.integer({ min: 1, max: 3 }), (list, domainKey) => {
      const scope = createScopeSet(list)
      for (const { type, operation } of list) {
        const keys = scope.keysFor(type, operation, domainKey)
        for (let key = 9; key <= 15; key++) {
          const isCovered = scope.covers(type, operation, domainKey, key)
          if (isCovered !== (keys === 'all' || keys.includes(key))) return false
          if (isCovered && !(scope.knows(type, domainKey, key) && scope.reaches(domainKey))) return false
        }
        if (scope.coversAll(type, operation, domainKey) !== (keys === 'all')) return false
      }
      return true
    }),
  )
})
