import { expect, test } from 'vitest'
import type { ApiRequest, Group } from './command.ts'
import { UsageError } from './failures.ts'
import { refuseEmptyQuery } from './request.ts'
import { resolveCommand } from './resolve.ts'

// contract decision 84
test('an empty query parameter of a request that changes something is refused', () => {
  const request = (method: ApiRequest['method'], publisher: string | undefined): ApiRequest => ({
    method,
    service: 'reader',
    path: '/d/channels/c/messages',
    query: { from: '1', publisher },
  })
  for (const method of ['POST', 'PUT', 'PATCH', 'DELETE'] as const)
    expect(() => refuseEmptyQuery(request(method, '')), method).toThrow(new UsageError('publisher must not be empty'))
  refuseEmptyQuery(request('DELETE', undefined))
  refuseEmptyQuery(request('GET', ''))
})

test('an empty argument, domain or token is refused', () => {
  const group: Group = {
    name: 'things',
    summary: '',
    commands: [{ words: 'delete', args: '<thing_id>', tail: 'domain', summary: '', example: '' }],
  }
  expect(resolveCommand(group, 'things', ['delete', 'a', 'b'])).toMatchObject({ args: { thing_id: 'a' }, rest: ['b'] })
  for (const words of [
    ['delete', ''],
    ['', 'delete'],
  ])
    expect(() => resolveCommand(group, 'things', words)).toThrow('<thing_id> must not be empty')
  for (const words of [
    ['delete', 'a', ''],
    ['delete', 'a', 'b', ''],
  ])
    expect(() => resolveCommand(group, 'things', words)).toThrow('must not be empty')
})
