/** Cursors of lists: a page goes on exactly after the last row of the page before, whatever comes and goes meanwhile. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import type { Caller } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { newGroup, newTenant } from './support.ts'
import type { Tenant } from './support.ts'

type Row = Record<string, unknown>
type ListPage = { total: number; offset?: number; limit: number; next?: string } & Record<string, unknown>

/** A list: its path with a query, how rows are added and removed, and which value of a row identifies it. */
type List = {
  path: string
  array: string
  call: Caller
  idOf: (row: Row) => string
  add: () => Promise<string>
  /** Absent where rows stay. */
  remove?: (id: string) => Promise<unknown>
}

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))

async function pageOf({ path, call }: Pick<List, 'path' | 'call'>, more: string): Promise<ListPage> {
  const answer = await call('GET', `${path}${path.includes('?') ? '&' : '?'}${more}`)
  expect(answer.status, answer.text).toBe(200)
  return answer.json<ListPage>()
}

const rowsOf = (page: ListPage, { array }: List): Row[] => page[array] as Row[]

/** Walks all pages; `between` runs after each page with the ids that were seen. */
async function walk(list: List, limit: number, between: (seen: readonly string[]) => Promise<void>): Promise<string[]> {
  const seen: string[] = []
  let cursor: string | undefined
  do {
    const page = await pageOf(list, `limit=${limit}${cursor === undefined ? '' : `&cursor=${cursor}`}`)
    const rows = rowsOf(page, list)
    if (page.next !== undefined) expect(rows).toHaveLength(limit)
    expect(page.offset).toBe(cursor === undefined ? 0 : undefined)
    seen.push(...rows.map(list.idOf))
    cursor = page.next
    await between(seen)
  } while (cursor !== undefined)
  return seen
}

const idOf = (row: Row) => row['id'] as string

async function created(call: Caller, path: string, body: unknown): Promise<Row> {
  const answer = await call('POST', path, body)
  expect([200, 201], answer.text).toContain(answer.status)
  return answer.json<Row>()
}

const query = async (text: string, values: unknown[] = []) =>
  (await api.database.pool.query<Record<string, unknown>>(text, values)).rows
const keyOf = async (table: string, id: string) =>
  (await query(`SELECT key FROM ${table} WHERE id = $1`, [id]))[0]?.['key']

/** A user without a password, which would take its time. */
async function newUserId(): Promise<string> {
  const id = newId()
  await query('INSERT INTO users (id, first_name, username, secret_hash) VALUES ($1, $2, $3, $4)', [
    id,
    `name ${id.slice(0, 2)}`,
    `user-${id}`,
    'none',
  ])
  return id
}

describe.each([
  ['clients', 'name'],
  ['clients', 'created_at'],
  ['clients', 'updated_at'],
  ['channels', 'name'],
  ['groups', 'updated_at'],
] as const)('%s in the order of %s', (type, order) => {
  test('are each returned once while others are added and removed', async () => {
    let round = 0
    await fc.assert(
      fc.asyncProperty(
        fc.record({
          dir: fc.constantFrom('asc', 'desc'),
          limit: fc.integer({ min: 1, max: 4 }),
          names: fc.array(fc.constantFrom('a', 'b', 'ü', '水', 'x'.repeat(300), 'x'.repeat(256)), {
            minLength: 1,
            maxLength: 8,
          }),
          steps: fc.array(fc.tuple(fc.constantFrom('add', 'remove', 'none'), fc.nat()), { maxLength: 8 }),
          isNarrow: fc.boolean(),
        }),
        async ({ dir, limit, names, steps, isNarrow }) => {
          const tag = `round-${(round += 1)}`
          const { call, domainId } = tenant
          const base = `/${domainId}/${type}`
          const make = (name: string) => ({ name, tags: [tag] })
          const add = async (name: string) => idOf(await created(call, base, make(name)))
          // Rows of one bulk creation have the same time.
          const first = type === 'groups' ? undefined : await created(call, `${base}/bulk`, names.map(make))
          const ids =
            first === undefined ? await Promise.all(names.map(add)) : (first[type] as Row[]).map((row) => idOf(row))
          const path = `${base}?order=${order}&dir=${dir}&tag=${tag}${isNarrow ? '&actions=update' : ''}`
          const list: List = { path, array: type, call, idOf, add: () => add('b') }
          const removed = new Set<string>()
          const left = [...steps]
          const seen = await walk(list, limit, async () => {
            const [what, choice] = left.pop() ?? ['none', 0]
            if (what === 'add') await list.add()
            const victim = ids[choice % ids.length] as string
            if (what !== 'remove' || removed.has(victim)) return
            expect((await call('DELETE', `${base}/${victim}`)).status).toBeLessThan(300)
            removed.add(victim)
          })
          expect(new Set(seen).size).toBe(seen.length)
          const staying = ids.filter((id) => !removed.has(id))
          expect(seen.filter((id) => staying.includes(id)).toSorted()).toEqual(staying.toSorted())
          // Without changes the pages are those of one page.
          const whole = rowsOf(await pageOf(list, 'limit=100'), list).map(idOf)
          expect(await walk(list, limit, async () => undefined)).toEqual(whole)
        },
      ),
      { numRuns: 12 },
    )
  })
})

const LISTS: Readonly<Record<string, () => Promise<List>>> = {
  'the clients of all domains': async () => {
    const mine = await newTenant(api)
    await created(mine.call, '/domains', { name: 'other' })
    return {
      path: '/clients?order=created_at',
      array: 'clients',
      call: mine.call,
      idOf,
      add: async () => (await mine.newClient()).id,
      remove: (id) => mine.call('DELETE', `/${mine.domainId}/clients/${id}`),
    }
  },
  'clients in the order of their state': async () => {
    const mine = await newTenant(api)
    return {
      path: `/${mine.domainId}/clients?order=online&dir=desc`,
      array: 'clients',
      call: mine.call,
      idOf,
      add: async () => (await mine.newClient()).id,
      remove: (id) => mine.call('DELETE', `/${mine.domainId}/clients/${id}`),
    }
  },
  'the children of a group': async () => {
    const parent = await newGroup(api, tenant.domainId)
    return {
      path: `/${tenant.domainId}/groups/${parent}/children?order=name`,
      array: 'groups',
      call: tenant.call,
      idOf,
      add: async () => idOf(await created(tenant.call, `/${tenant.domainId}/groups`, { name: 'c', parent_id: parent })),
      remove: (id) => tenant.call('DELETE', `/${tenant.domainId}/groups/${id}`),
    }
  },
  'users by name': async () => ({
    path: '/users?order=name&status=all&username=user-',
    array: 'users',
    call: api.admin,
    idOf,
    add: newUserId,
    remove: (id) => query('DELETE FROM users WHERE id = $1', [id]),
  }),
  domains: async () => {
    const { call } = await api.newUser()
    return {
      path: '/domains?order=created_at&dir=desc',
      array: 'domains',
      call,
      idOf,
      add: async () => idOf(await created(call, '/domains', { name: 'd' })),
    }
  },
  'roles of a client': async () => {
    const { id } = await tenant.newClient()
    const base = `/${tenant.domainId}/clients/${id}/roles`
    let number = 0
    return {
      path: base,
      array: 'roles',
      call: tenant.call,
      idOf,
      add: async () => idOf(await created(tenant.call, base, { role_name: `r${(number += 1)}` })),
      remove: (role) => tenant.call('DELETE', `${base}/${role}`),
    }
  },
  'members of a role': () => listOfMembers((base, role) => `${base}/${role}/members`, String),
  'members of all roles': () =>
    listOfMembers(
      (base) => `${base}/members`,
      (row) => row['member_id'] as string,
    ),
  'users of a domain': async () => {
    const mine = await newTenant(api)
    const { members } = await roleOf(mine)
    return {
      path: `/domains/${mine.domainId}/users?order=created_at`,
      array: 'users',
      call: mine.call,
      idOf,
      add: members.add,
      remove: members.remove,
    }
  },
  invitations: async () => {
    const mine = await newTenant(api)
    const { role } = await roleOf(mine)
    const base = `/domains/${mine.domainId}/invitations`
    return {
      path: base,
      array: 'invitations',
      call: mine.call,
      idOf: (row) => row['invitee_user_id'] as string,
      add: async () => {
        const id = await newUserId()
        expect((await mine.call('POST', base, { invitee_user_id: id, role_id: role })).status).toBe(201)
        return id
      },
      remove: async (id) =>
        query('DELETE FROM invitations i USING users u WHERE u.key = i.user_key AND u.id = $1', [id]),
    }
  },
  'the journal of a domain': () => journalOf('desc'),
  'the journal of a domain, the oldest first': () => journalOf('asc'),
  'personal access tokens': async () => {
    const { call } = await api.newUser()
    return {
      path: '/pats',
      array: 'pats',
      call,
      idOf,
      add: async () => idOf(await created(call, '/pats', { name: newId(), duration: '1h' })),
      remove: (id) => call('DELETE', `/pats/${id}`),
    }
  },
  'API keys': async () => {
    const { call } = await api.newUser()
    return {
      path: '/keys',
      array: 'keys',
      call,
      idOf,
      add: async () => idOf(await created(call, '/keys', { type: 3 })),
      remove: (id) => call('DELETE', `/keys/${id}`),
    }
  },
  logins: async () => {
    const user = await api.newUser()
    return {
      path: '/users/tokens/refresh-tokens',
      array: 'refresh_tokens',
      call: user.call,
      idOf,
      add: async () => {
        const body = { username: user.username, password: user.secret }
        expect((await api.anonymous('POST', '/users/tokens/issue', body)).status).toBe(201)
        const [newest] = await query(
          `SELECT s.id FROM sessions s JOIN users u ON u.key = s.user_key
          WHERE u.id = $1 ORDER BY s.created_at DESC LIMIT 1`,
          [user.id],
        )
        return idOf(newest as Row)
      },
    }
  },
  dashboards: async () => {
    const mine = await newTenant(api)
    const base = `/${mine.domainId}/dashboards`
    return {
      path: base,
      array: 'dashboards',
      call: mine.call,
      idOf,
      add: async () => idOf(await created(mine.call, base, { name: 'same', content: {} })),
      remove: (id) => mine.call('DELETE', `${base}/${id}`),
    }
  },
  'retained messages': async () => {
    const { id } = await tenant.newChannel()
    const key = await keyOf('channels', id)
    return {
      path: `/${tenant.domainId}/channels/${id}/retained`,
      array: 'messages',
      call: tenant.call,
      idOf: (row) => row['subtopic'] as string,
      add: async () => {
        const subtopic = newId()
        await query(`INSERT INTO mqtt_retained VALUES ($1, $2, '', 0, NULL, '')`, [key, subtopic])
        return subtopic
      },
      remove: (subtopic) => query('DELETE FROM mqtt_retained WHERE subtopic = $1', [subtopic]),
    }
  },
  'MQTT sessions': async () => {
    const { id } = await tenant.newClient()
    const key = await keyOf('clients', id)
    return {
      path: `/${tenant.domainId}/clients/${id}/sessions`,
      array: 'sessions',
      call: tenant.call,
      idOf: (row) => row['client_identifier'] as string,
      add: async () => {
        const identifier = `${newId()} 水`
        const text = `INSERT INTO mqtt_sessions (client_key, client_identifier, node, version, address, expiry_seconds, is_connected, ends_at)
          VALUES ($1, $2, 'n', 5, '::1', 60, false, now() + interval '1 day')`
        await query(text, [key, identifier])
        return identifier
      },
      remove: (identifier) => query('DELETE FROM mqtt_sessions WHERE client_identifier = $1', [identifier]),
    }
  },
  certificates: async () => {
    const { id } = await tenant.newClient()
    const key = await keyOf('clients', id)
    const domainKey = await keyOf('domains', tenant.domainId)
    return {
      path: `/${tenant.domainId}/serials/${id}`,
      array: 'certs',
      call: tenant.call,
      idOf: (row) => row['serial_number'] as string,
      add: async () => {
        const serial = newId().replaceAll('-', '')
        const text = `INSERT INTO certificates (serial, fingerprint, authority, domain_key, client_key, client_id, pem, not_before, not_after)
          VALUES ($1::text, convert_to($1, 'UTF8'), 'a', $2, $3, $4, '', now(), now())`
        await query(text, [serial, domainKey, key, id])
        return serial
      },
      remove: (serial) => query('DELETE FROM certificates WHERE serial = $1', [serial]),
    }
  },
  'bootstrap profiles': async () => {
    const base = `/${tenant.domainId}/clients/bootstrap/profiles`
    return {
      path: base,
      array: 'profiles',
      call: tenant.call,
      idOf,
      add: async () => {
        const body = { name: 'agent', template_format: 'json', content_template: '{}', defaults: {}, binding_slots: [] }
        return idOf(await created(tenant.call, base, body))
      },
      remove: (id) => tenant.call('DELETE', `${base}/${id}`),
    }
  },
  'bootstrap configurations': async () => {
    const mine = await newTenant(api)
    const channel = await mine.newChannel()
    const base = `/${mine.domainId}/clients/configs`
    return {
      path: base,
      array: 'configs',
      call: mine.call,
      idOf: (row) => row['client_id'] as string,
      add: async () => {
        const body = { external_id: newId(), external_key: newId(), channels: [channel.id] }
        const made = await mine.call('POST', base, body)
        expect(made.status, made.text).toBe(201)
        return String(made.headers['location']).split('/').at(-1) as string
      },
      remove: (id) => mine.call('DELETE', `${base}/${id}`),
    }
  },
  'subscriptions to notifications': async () => {
    const { call, id: userId } = await api.newUser()
    const { id: channelId } = await tenant.newChannel()
    const keys = [await keyOf('users', userId), await keyOf('channels', channelId)]
    return {
      path: '/subscriptions',
      array: 'subscriptions',
      call,
      idOf,
      add: async () => {
        const id = newId()
        const text = `INSERT INTO notification_subscriptions (id, user_key, channel_key, topic, filter, contact)
          VALUES ($1::uuid, $2, $3, 't', '', $1::text)`
        await query(text, [id, ...keys])
        return id
      },
      remove: (id) => query('DELETE FROM notification_subscriptions WHERE id = $1', [id]),
    }
  },
  'dead letters': async () => {
    const { call, id: userId } = await api.newUser()
    const { id: channelId } = await tenant.newChannel()
    const id = newId()
    const text = `INSERT INTO notification_subscriptions (id, user_key, channel_key, topic, filter, contact)
      VALUES ($1::uuid, $2, $3, 't', '', 'x') RETURNING key`
    const [row] = await query(text, [id, await keyOf('users', userId), await keyOf('channels', channelId)])
    return {
      path: `/subscriptions/${id}/dead-letters`,
      array: 'dead_letters',
      call,
      idOf: (letter) => (letter['message'] as Row)['n'] as string,
      add: async () => {
        const name = newId()
        const insertion = `INSERT INTO notification_deliveries (subscription_key, payload, next_attempt_at) VALUES ($1, $2, NULL)`
        await query(insertion, [row?.['key'], JSON.stringify({ n: name })])
        return name
      },
      remove: (name) => query(`DELETE FROM notification_deliveries WHERE payload ->> 'n' = $1`, [name]),
    }
  },
  'messages, the newest first': () => messagesOf('dir=desc'),
  'messages, the oldest first': () => messagesOf('dir=asc'),
  'messages by a name': () => messagesOf('name=v'),
  // In microseconds, their times exceed 2^53.
  'messages of the year 9999': () => messagesOf('dir=desc', 253_402_200_000),
  'JSON messages': async () => {
    const { call, domainId, newChannel } = tenant
    const { id } = await newChannel()
    return {
      path: `/${domainId}/channels/${id}/messages?format=json`,
      array: 'messages',
      call,
      idOf: (row) => (row['payload'] as Row)['n'] as string,
      add: async () => {
        const names = [newId(), newId()]
        await send(
          call,
          `/m/${domainId}/c/${id}/json`,
          'application/json',
          names.map((n) => ({ n })),
        )
        return names[0] as string
      },
    }
  },
  'the newest record of every series': async () => {
    const { call, domainId, newChannel } = tenant
    const { id } = await newChannel()
    return {
      path: `/${domainId}/channels/${id}/messages/latest`,
      array: 'messages',
      call,
      idOf: (row) => row['name'] as string,
      add: async () => {
        const n = newId()
        await send(call, `/m/${domainId}/c/${id}`, 'application/senml+json', [{ n, v: 1 }])
        return n
      },
    }
  },
}

async function send(call: Caller, path: string, type: string, body: unknown): Promise<void> {
  const answer = await call('POST', path, JSON.stringify(body), { 'content-type': type })
  expect(answer.status, answer.text).toBe(202)
}

/** Three records of each message have one time, so that pages begin and end among equal times. */
async function messagesOf(more: string, firstTime = 1_790_000_000): Promise<List> {
  const { call, domainId, newChannel } = tenant
  const { id } = await newChannel()
  let value = 0
  return {
    path: `/${domainId}/channels/${id}/messages?${more}`,
    array: 'messages',
    call,
    idOf: (row) => String(row['value']),
    add: async () => {
      value += 3
      const t = firstTime + Math.floor(value / 9)
      const pack = [2, 1, 0].map((less) => ({ n: 'v', v: value - less, t }))
      await send(call, `/m/${domainId}/c/${id}`, 'application/senml+json', pack)
      return String(value)
    },
  }
}

async function journalOf(dir: 'asc' | 'desc'): Promise<List> {
  const mine = await newTenant(api)
  return {
    path: `/${mine.domainId}/journal/domain/${mine.domainId}?dir=${dir}&operation=client.create&with_attributes=true`,
    array: 'journals',
    call: mine.call,
    idOf: (row) => (row['attributes'] as Row)['id'] as string,
    add: async () => (await mine.newClient()).id,
  }
}

async function roleOf(mine: Tenant) {
  const base = `/domains/${mine.domainId}/roles`
  const role = idOf(await created(mine.call, base, { role_name: newId().slice(0, 8), optional_actions: ['read'] }))
  const members = {
    add: async () => {
      const id = await newUserId()
      await created(mine.call, `${base}/${role}/members`, { members: [id] })
      return id
    },
    remove: (id: string) => mine.call('POST', `${base}/${role}/members/delete`, { members: [id] }),
  }
  return { base, role, members }
}

async function listOfMembers(pathOf: (base: string, role: string) => string, id: (row: Row) => string): Promise<List> {
  const mine = await newTenant(api)
  const { base, role, members } = await roleOf(mine)
  return { path: pathOf(base, role), array: 'members', call: mine.call, idOf: id, ...members }
}

describe.each(Object.entries(LISTS))('%s', (_name, listOf) => {
  test('are each returned once while others are added and removed, and the last page has no cursor', async () => {
    const list = await listOf()
    const ids: string[] = []
    for (let count = 0; count < 7; count += 1) ids.push(await list.add())
    const removed = new Set<string>()
    const seen = await walk(list, 2, async (before) => {
      if (before.length > 8) return
      const victim = ids.find((id) => !removed.has(id) && !before.includes(id))
      if (list.remove !== undefined && removed.size < 2 && victim !== undefined) {
        await list.remove(victim)
        removed.add(victim)
      }
      const last = before.at(-1)
      // The row that a cursor names may be gone.
      if (list.remove !== undefined && before.length === 2 && last !== undefined && ids.includes(last))
        await list.remove(last)
      await list.add()
    })
    expect(new Set(seen).size).toBe(seen.length)
    for (const id of ids) expect(seen.includes(id), id).toBe(!removed.has(id))
    const pages = await walk(list, 3, async () => undefined)
    expect(pages).toEqual(rowsOf(await pageOf(list, 'limit=100'), list).map(list.idOf))
    const { next, total } = await pageOf(list, 'limit=1')
    expect((await pageOf(list, `limit=1&cursor=${next}`)).total).toBe(total)
    const refused = async (more: string) => {
      const answer = await list.call('GET', `${list.path}${list.path.includes('?') ? '&' : '?'}${more}`)
      expect(answer.status, more).toBe(400)
      return answer.json<{ message: string }>().message
    }
    expect(await refused(`cursor=${next}&offset=1`)).toBe('cursor must not be combined with offset')
    expect(await refused('cursor=here')).toBe('cursor must be the `next` of a page')
  })
})

test('a cursor is refused by a list with other filters, in another order or of another domain', async () => {
  const { call, domainId } = tenant
  await Promise.all([tenant.newClient(), tenant.newClient()])
  const { next } = await pageOf({ path: `/${domainId}/clients?order=name`, call }, 'limit=1')
  const other = await newTenant(api)
  for (const [caller, path] of [
    [call, `/${domainId}/clients?order=created_at`],
    [call, `/${domainId}/clients?order=name&dir=desc`],
    [call, `/${domainId}/clients?order=name&tag=a`],
    [call, `/${domainId}/channels?order=name`],
    [other.call, `/${other.domainId}/clients?order=name`],
  ] as const) {
    const answer = await caller('GET', `${path}&cursor=${next}`)
    expect(answer.status, path).toBe(400)
    expect(answer.json<{ message: string }>().message).toBe(
      'cursor is of a listing with other filters or another order',
    )
  }
})

test('messages in another order than that of time have no cursor', async () => {
  const list = await messagesOf('order=value')
  await list.add()
  expect(await pageOf(list, 'limit=1')).not.toHaveProperty('next')
  const { next } = await pageOf({ ...list, path: list.path.replace('order=value', 'dir=desc') }, 'limit=1')
  expect((await list.call('GET', `${list.path}&cursor=${next}`)).status).toBe(400)
})
