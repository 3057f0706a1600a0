/**
 * No name of a caller's choice is a fault of ours: every operation is called with names that every object of the language has, in path,
 * query and body, and answers what it would answer to any other unknown name. Misspelt ones are named (contract decisions 64 and 71).
 */
import { describe, expect, it } from 'vitest'
import { completeDocument } from '#http/index.ts'
import type { Document } from '#http/index.ts'
import { taskRoutes } from '../fuzz/world.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { newTenant } from './support.ts'

const NAMES = ['__proto__', 'constructor', 'prototype', 'toString', 'hasOwnProperty', 'valueOf', '__defineGetter__']

const api = useWorld(() => startTestApi({ alsoServes: taskRoutes }))
const tenant = useWorld(() => newTenant(api))

type Paths = { paths: Record<string, Record<string, { parameters?: { name: string; in: string }[] }>> }

/** Each operation with a path in which `strange` or a real domain stands for its parameters. */
async function operations(strange: string): Promise<[method: string, path: string, isStream: boolean][]> {
  const { paths } = completeDocument((await api.anonymous('GET', '/openapi.json')).json<Document>()) as Paths
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method): [string, string, boolean] => [
      method.toUpperCase(),
      path.replace('{domain_id}', tenant.domainId).replaceAll(/\{[^}]+\}/g, strange),
      /\/(?:live|events)$/.test(path),
    ]),
  )
}

describe('strange names', () => {
  it.each(NAMES)('%s causes no server error in any path, query or body', async (name) => {
    const others = NAMES.filter((one) => one !== '__proto__')
    const query = NAMES.map((one) => `${one}=1`).join('&')
    const body = `{${others.map((one) => `"${one}":{"${one}":1}`).join(',')}}`
    const faults: string[] = []
    for (const [method, path, isStream] of await operations(name)) {
      if (isStream) continue
      for (const content of method === 'GET' || method === 'DELETE'
        ? [undefined]
        : [body, `[${body}]`, '{"__proto__":1}']) {
        const headers = content === undefined ? {} : { 'content-type': 'application/json' }
        const { status, text } = await tenant.call(method, `${path}?${query}`, content, headers)
        // With 503 and its checks, `/ready` reports that the program is busy, whatever the query.
        const isBusy = path === '/ready' && status === 503 && text.startsWith('{"status":"unavailable","checks":{')
        if (status >= 500 && !isBusy) faults.push(`${method} ${path} ${status} ${text}`)
      }
    }
    expect(faults).toEqual([])
  })

  it('that are misspelt are reported, for resources of the platform and for tasks', async () => {
    const of = async (method: string, path: string, body?: unknown) =>
      (await tenant.call(method, path, body)).headers['skein-hint']
    const { domainId } = tenant
    expect(await of('GET', `/${domainId}/clients?limt=5`)).toBe('limt: did you mean limit?')
    expect(await of('GET', `/${domainId}/clients?limit=5&tag=x&metadata=%7B%7D&status=all`)).toBeUndefined()
    expect(await of('POST', `/${domainId}/clients`, { nmae: 'pump', credentials: { secrt: 'x' } })).toBe(
      'nmae: did you mean name?; credentials.secrt: did you mean secret?',
    )
    expect(await of('POST', `/${domainId}/clients/bulk`, [{ name: 'a' }, { tgas: [] }])).toBe(
      'tgas: did you mean tags?',
    )
    expect(await of('POST', '/tasks', { name: 't', domain_id: domainId, shedule: '* * * * *' })).toBe(
      'shedule: did you mean schedule?',
    )
    expect(
      await of('POST', '/workflows', { name: 'w', domain_id: domainId, tasks: [{ name: 'a', imageUrl: 'x' }] }),
    ).toBe('tasks.imageUrl: did you mean image_url?')
  })
})
