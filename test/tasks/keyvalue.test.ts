/** Every function of wasi:keyvalue and wasi:config, called by components of both drafts; their results are JSON of the components' types. */
import { afterEach, beforeAll, describe, expect, test } from 'vitest'
import { useWorld } from '../harness/world.ts'
import { DRAFTS, keyvalueComponent } from './keyvalue-component.ts'
import type { Draft } from './keyvalue-component.ts'
import { startTestTenant } from './platform.ts'
import { clientOf } from './support.ts'

const tenant = useWorld(startTestTenant)

type Answer = { results: unknown; reason: string | null; error: string | null }

const bytes = (text: string) => [...Buffer.from(text)]

async function taskOf(draft: Draft, config: string) {
  const env = { SITE: 'hall 4', EMPTY: '' }
  const created = await tenant.owner.call('POST', '/tasks', { name: 'keyvalue', domain_id: tenant.domain, env })
  expect(created.status, created.text).toBe(201)
  const { id } = created.json<{ id: string }>()
  const module = Buffer.from(await keyvalueComponent(draft, config))
  const headers = { authorization: `Bearer ${tenant.owner.accessToken}` }
  const uploaded = await clientOf(tenant.api.app).upload(id, module, 'file', headers)
  expect(uploaded.status, JSON.stringify(uploaded.body)).toBe(200)
  return {
    id,
    async run(name: string, ...inputs: unknown[]): Promise<Answer> {
      const changed = await tenant.owner.call('PUT', `/tasks/${id}`, { function: name })
      expect(changed.status, changed.text).toBe(200)
      return (await tenant.owner.call('POST', `/tasks/${id}/invoke`, { inputs })).json<Answer>()
    },
    /** What the function returned. */
    async call(name: string, ...inputs: unknown[]): Promise<unknown> {
      const answer = await this.run(name, ...inputs)
      expect(answer, name).toMatchObject({ reason: null, error: null })
      return answer.results
    },
  }
}

const CONFIGS = { '0.2.0-draft': '0.2.0-draft', '0.2.0-draft2': '0.2.0-rc.1' } as const

describe.each(Object.keys(DRAFTS) as Draft[])('wasi:keyvalue@%s', (draft) => {
  let task: Awaited<ReturnType<typeof taskOf>>
  beforeAll(async () => {
    task = await taskOf(draft, CONFIGS[draft])
  })
  afterEach(async () => {
    const page = await tenant.owner.call('GET', `/tasks/${task.id}/state?limit=100`)
    for (const { key } of page.json<{ keys: { key: string }[] }>().keys)
      await tenant.owner.call('DELETE', `/tasks/${task.id}/state/${encodeURIComponent(key)}`)
  })

  test('opens the bucket of the task, not that of a client without a message, and no other', async () => {
    expect(await task.call('opened', 'task')).toBe(0)
    expect(await task.call('opened', 'client')).toBe(1)
    expect(await task.call('opened', '')).toBe(1)
    expect(await task.call('opened', 'constructor')).toBe(1)
  })

  test('store: sets, gets, finds, lists and deletes', async () => {
    expect(await task.call('get', 'a/ü')).toBe(null)
    expect(await task.call('exists', 'a/ü')).toBe(false)
    expect(await task.call('set', 'a/ü', [0, 255, 10])).toBe(null)
    expect(await task.call('set', 'b', [])).toBe(null)
    expect(await task.call('get', 'a/ü')).toEqual([0, 255, 10])
    expect(await task.call('get', 'b')).toEqual([])
    expect(await task.call('exists', 'b')).toBe(true)
    expect(await task.call('list-keys', null)).toEqual({ keys: ['a/ü', 'b'], cursor: null })
    expect(await task.call('delete', 'b')).toBe(null)
    expect(await task.call('delete', 'b')).toBe(null)
    expect(await task.call('exists', 'b')).toBe(false)
    expect(await task.call('list-keys', null)).toEqual({ keys: ['a/ü'], cursor: null })
  })

  test('store: what a key or value must be is an err of the guest', async () => {
    const largest = Array.from({ length: 65_536 }, () => 7)
    expect(await task.call('set', 'k'.repeat(256), largest)).toBe(null)
    expect(await task.call('get', 'k'.repeat(256))).toEqual(largest)
    const refusals = [
      await task.run('set', 'large', [...largest, 7]),
      await task.run('set', '', [1]),
      await task.run('set', 'k'.repeat(257), [1]),
    ]
    expect(refusals.map(({ reason }) => reason)).toEqual(refusals.map(() => 'guest_error'))
    expect(refusals.map(({ results }) => results)).toEqual([
      { err: { other: 'a value must be at most 65536 bytes' } },
      { err: { other: 'a key must not be empty' } },
      { err: { other: 'a key must be at most 256 bytes' } },
    ])
    expect(await task.call('list-keys', null)).toEqual({ keys: ['k'.repeat(256)], cursor: null })
  })

  test('atomics: increments from nothing, and refuses what is no number', async () => {
    expect(await task.call('increment', 'n', 40)).toBe(40)
    expect(await task.call('increment', 'n', 2)).toBe(42)
    expect(await task.call('get', 'n')).toEqual(bytes('42'))
    if (DRAFTS[draft].number === 's64') {
      expect(await task.call('increment', 'n', -50)).toBe(-8)
      expect(await task.call('increment', 'm', '-9223372036854775808')).toBe('-9223372036854775808')
      expect((await task.run('increment', 'm', -1)).results).toEqual({ err: { other: 'the number exceeds 64 bits' } })
    }
    await task.call('set', 'text', bytes('4a'))
    expect((await task.run('increment', 'text', 1)).results).toEqual({
      err: { other: 'the value is not a whole number as decimal text' },
    })
  })

  test('batch: reads, writes and deletes many keys, in their order', async () => {
    const pairs = Array.from({ length: 25 }, (_, at) => [`k${String(at).padStart(2, '0')}`, bytes(String(at))])
    expect(await task.call('set-many', pairs)).toBe(null)
    expect(await task.call('get-many', ['k24', 'none', 'k03', 'k24'])).toEqual([
      ['k24', bytes('24')],
      null,
      ['k03', bytes('3')],
      ['k24', bytes('24')],
    ])
    expect(await task.call('get-many', [])).toEqual([])
    expect(
      await task.call(
        'delete-many',
        pairs.slice(1).map(([key]) => key),
      ),
    ).toBe(null)
    expect(await task.call('list-keys', null)).toEqual({ keys: ['k00'], cursor: null })
    // The last of two values of one key is kept, and a run sees what it has written.
    const twice = [
      ['z', [1]],
      ['k00', [2]],
      ['z', [3]],
    ]
    expect(await task.call('set-and-list', twice)).toEqual({ keys: ['k00', 'z'], cursor: null })
    expect(await task.call('get-many', ['k00', 'z'])).toEqual([
      ['k00', [2]],
      ['z', [3]],
    ])
  })

  test.skipIf(!DRAFTS[draft].hasCas)('atomics: swaps what it has seen, and gets a new cas otherwise', async () => {
    expect(await task.call('current', 'c')).toBe(null)
    expect(await task.call('swap', 'c', bytes('one'), 0)).toBe(0)
    expect(await task.call('current', 'c')).toEqual(bytes('one'))
    // Another value was set meanwhile: cas-failed, whose cas swaps.
    expect(await task.call('swap', 'c', bytes('two'), 1)).toBe(10)
    expect(await task.call('current', 'c')).toEqual(bytes('two'))
    // store-error
    expect(
      await task.call(
        'swap',
        'c',
        Array.from({ length: 65_537 }, () => 1),
        0,
      ),
    ).toBe(1)
    expect(await task.call('current', 'c')).toEqual(bytes('two'))
  })

  test('wasi:config has the environment', async () => {
    expect(await task.call('config-get', 'SITE')).toBe('hall 4')
    expect(await task.call('config-get', 'EMPTY')).toBe('')
    expect(await task.call('config-get', 'toString')).toBe(null)
    const all = Object.fromEntries((await task.call('config-get-all')) as [string, string][])
    expect(all).toMatchObject({ SITE: 'hall 4', EMPTY: '', TASK_ID: task.id })
  })
})
