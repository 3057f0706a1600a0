/** Whole files of clients, channels and connections: all or nothing, with a report by line (contract section 13, bulk files). */
import { describe, expect, it } from 'vitest'
import { newId } from '#core/ids.ts'
import { newMember, publish, newTenant } from '../api/support.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'

type Report = { error: string; message: string; details: { path: string; message: string }[] }

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))

type Kind = 'clients' | 'channels' | 'connections'
const csv = (kind: Kind, text: string, by = tenant) =>
  by.call('POST', `/${by.domainId}/${kind}/import`, text, { 'content-type': 'text/csv' })
const csvBytes = async (payload: Buffer, type = 'text/csv') => {
  const headers = { authorization: `Bearer ${tenant.user.accessToken}`, 'content-type': type }
  const answer = await api.app.inject({ method: 'POST', url: `/${tenant.domainId}/clients/import`, headers, payload })
  return { status: answer.statusCode, text: answer.body, json: <T>() => answer.json<T>() }
}
const json = (kind: Kind, value: unknown) => tenant.call('POST', `/${tenant.domainId}/${kind}/import`, value)
const total = async (kind: 'clients' | 'channels') =>
  (await tenant.call('GET', `/${tenant.domainId}/${kind}?limit=1`)).json<{ total: number }>().total

describe('a file of names', () => {
  it('creates a client from the first column of each CSV line without a header, ignoring trailing commas and empty lines', async () => {
    const answer = await csv('clients', '\uFEFFpump 1,ignored,\r\n\r\n"pump, 2"\n  pump 3  ,,\n')
    expect(answer.status, answer.text).toBe(201)
    const { total: made, clients } = answer.json<{
      total: number
      clients: { id: string; name: string; credentials: { secret: string } }[]
    }>()
    expect(made).toBe(3)
    expect(clients.map(({ name }) => name)).toEqual(['pump 1', 'pump, 2', 'pump 3'])
    expect(clients.every(({ credentials }) => credentials.secret.length > 0)).toBe(true)
  })

  it('with a header maps columns to id, name, secret, tags and metadata', async () => {
    const id = newId()
    const answer = await csv(
      'clients',
      `Name,id,secret,tags,metadata\npump 1,${id},the-secret-of-pump-1,"a,b","{""floor"": 3, ""deep"": {""x"": [1]}}"\npump 2,,,c; d,\n`,
    )
    expect(answer.status, answer.text).toBe(201)
    const { clients } = answer.json<{ clients: { id: string; name: string; credentials: { secret: string } }[] }>()
    expect(clients).toMatchObject([
      { id, name: 'pump 1', credentials: { secret: 'the-secret-of-pump-1' } },
      { name: 'pump 2' },
    ])
    const one = await tenant.call('GET', `/${tenant.domainId}/clients/${id}`)
    expect(one.json()).toMatchObject({ tags: ['a', 'b'], metadata: { floor: 3, deep: { x: [1] } } })
    const two = await tenant.call('GET', `/${tenant.domainId}/clients/${clients[1]?.id}`)
    expect(two.json()).toMatchObject({ tags: ['c', 'd'], metadata: {} })
    const channels = await csv('channels', 'name,route,description\nreadings,r-1,of the pumps\n')
    expect(channels.status, channels.text).toBe(201)
  })

  it.each([
    [
      'clients',
      'name,colour\npump,red',
      'line 1 has an unknown column "colour"; columns are id, name, secret, tags, metadata, status',
    ],
    ['clients', 'name,tgas\npump,x', 'line 1 has an unknown column "tgas", did you mean tags?'],
    ['clients', 'name,id,Name\npump,,x', 'line 1 has the column name twice'],
    ['channels', 'name,secret\nx,y', 'line 1 has an unknown column "secret"'],
    ['connections', 'client_id,chanel_id\n', 'line 1 has an unknown column "chanel_id", did you mean channel_id?'],
    ['clients', 'name,metadata\npump,{broken', 'line 2 metadata must be a JSON object'],
    ['clients', 'name,metadata\npump,"[1]"', 'line 2 metadata must be a JSON object'],
    ['clients', 'name,metadata\npump,"{""__proto__"": 1}"', 'line 2 metadata must not have a key __proto__'],
    ['clients', `name,metadata\npump,"${'{""a"":'.repeat(200)}1${'}'.repeat(200)}"`, 'line 2 metadata'],
    ['clients', 'name\npump,2', 'line 2 has more cells than the header (1)'],
    ['clients', 'pump\0', 'line 1 name must not contain a NUL character'],
    ['clients', 'name\n', 'the file is empty'],
  ] as const)('of %s with %j is refused by line and name', async (kind, text, message) => {
    const answer = await csv(kind, text)
    expect(answer.status).toBe(400)
    expect(answer.json<Report>().message).toContain(message)
  })

  it('is validated by a dry run that creates nothing', async () => {
    const before = await total('clients')
    const file = 'name\npump 1\npump 2\n'
    const call = (text: string) =>
      tenant.call('POST', `/${tenant.domainId}/clients/import?dry_run=true`, text, { 'content-type': 'text/csv' })
    const tried = await call(file)
    expect(tried.status, tried.text).toBe(200)
    expect(tried.json()).toMatchObject({
      total: 2,
      changes: [
        { operation: 'client.create', name: 'pump 1' },
        { operation: 'client.create', name: 'pump 2' },
      ],
    })
    expect(tried.json<{ rows: unknown[] }>().rows).toContainEqual({
      table: 'clients',
      created: 2,
      updated: 0,
      deleted: 0,
    })
    expect((await call('name,x\n')).status).toBe(400)
    const reader = await newMember(api, tenant, ['read', 'client_read'])
    const url = `/${tenant.domainId}/clients/import?dry_run=true`
    expect((await reader.call('POST', url, file, { 'content-type': 'text/csv' })).status).toBe(403)
    expect(await total('clients')).toBe(before)
  })

  it('creates channels from JSON with all fields of a channel', async () => {
    const id = newId()
    const answer = await json('channels', [
      { id, name: 'one', metadata: { type: 'data' } },
      { name: 'two', status: 'disabled' },
    ])
    expect(answer.json()).toMatchObject({ total: 2, channels: [{ id, name: 'one' }, { name: 'two' }] })
    expect((await tenant.call('GET', `/${tenant.domainId}/channels/${id}`)).json()).toMatchObject({
      metadata: { type: 'data' },
    })
  })

  it('with errors is rejected as a whole, and each error is reported with its position and reason', async () => {
    const existing = await tenant.newClient()
    const before = await total('clients')
    const bad = await json('clients', [{ name: 'good' }, { name: 7 }, { status: 'perhaps' }, 'text', { id: 'x' }])
    expect(bad.status).toBe(400)
    expect(bad.json<Report>().details.map(({ path }) => path)).toEqual(['item 2', 'item 3', 'item 4', 'item 5'])
    expect(bad.json<Report>().details[0]?.message).toContain('name')
    const id = newId()
    const taken = await json('clients', [
      { id },
      { id: existing.id },
      { id },
      { credentials: { secret: 's1' } },
      { credentials: { secret: 's1' } },
    ])
    expect(taken.status).toBe(409)
    expect(taken.json<Report>().details).toEqual([
      { path: 'item 2', message: 'has the id of an existing client of the domain' },
      { path: 'item 3', message: 'repeats the id of item 1' },
      { path: 'item 5', message: 'repeats the secret of item 4' },
    ])
    const long = await csv('clients', `fine\n${'x'.repeat(1025)}\nfine`)
    expect(long.json<Report>().details).toMatchObject([{ path: 'line 2' }])
    expect(await total('clients')).toBe(before)
  })

  it('with errors of every kind reports all of them at once, with what is accepted', async () => {
    const existing = await tenant.newClient()
    const before = await total('clients')
    const answer = await csv(
      'clients',
      [
        'name,id,secret,metadata,status',
        'fine,,s-1,,',
        'two,,s-1,,maybe',
        'three,,,{broken,',
        'fo"ur,,,,',
        `five,${existing.id},,,`,
        `${'x'.repeat(1025)},not-an-id,,,`,
        'seven,,s-1,,',
        'eight,,,,,more',
        '"nine',
      ].join('\n'),
    )
    expect(answer.status).toBe(400)
    const { details, message } = answer.json<Report>()
    expect(message).toContain('the file has 9 errors')
    expect(details.map(({ path, message: text }) => `${path} ${text}`)).toEqual([
      expect.stringMatching(/^line 3 status must be one of .*enabled.*disabled/),
      expect.stringMatching(/^line 4 metadata must be a JSON object/),
      'line 5 is not valid CSV: quote inside a cell',
      'line 6 has the id of an existing client of the domain',
      expect.stringMatching(/^line 7 id /),
      'line 7 name must have at most 1024 characters',
      'line 8 repeats the secret of line 2',
      'line 9 has more cells than the header (5)',
      'line 10 is not valid CSV: unclosed quote',
    ])
    expect(await total('clients')).toBe(before)
  })

  it.each([
    ['semicolons', 'name;secret;tags\nKüche;SECRET;a,b\n'],
    ['tabs', 'name\tsecret\ttags\nKüche\tSECRET\ta,b\n'],
    ['a line sep=', 'sep=;\r\nname;secret;tags\r\nKüche;SECRET;"a;b"\r\n;;\r\n'],
  ])('separated by %s is read like one with commas', async (_name, text) => {
    const secret = newId()
    for (const encoding of ['utf8', 'utf16le'] as const) {
      const bytes = Buffer.from(`\ufeff${text.replace('SECRET', `${secret}-${encoding}`)}`, encoding)
      const answer = await csvBytes(bytes)
      expect(answer.status, answer.text).toBe(201)
      const { clients } = answer.json<{ clients: { id: string; name: string; credentials: { secret: string } }[] }>()
      expect(clients).toMatchObject([{ name: 'Küche', credentials: { secret: `${secret}-${encoding}` } }])
      const one = await tenant.call('GET', `/${tenant.domainId}/clients/${clients[0]?.id}`)
      expect(one.json()).toMatchObject({ tags: ['a', 'b'] })
    }
  })

  it('of names may contain semicolons and tabs', async () => {
    const answer = await csv('clients', 'hall; north\nhall; south\n')
    expect(answer.json<{ clients: { name: string }[] }>().clients.map(({ name }) => name)).toEqual([
      'hall; north',
      'hall; south',
    ])
  })

  it('is decoded by the announced charset, and refused when it is not in it', async () => {
    const latin = Buffer.from('name\nKüche\n', 'latin1')
    const before = await total('clients')
    for (const type of ['text/csv', 'text/csv; charset=utf-8', 'text/csv; charset=klingon']) {
      const refused = await csvBytes(latin, type)
      expect(refused.status, refused.text).toBe(400)
      expect(refused.json<Report>().message).toContain('must be UTF-8, UTF-16 with a byte order mark')
    }
    expect(await total('clients')).toBe(before)
    const read = await csvBytes(latin, 'text/csv; charset="windows-1252"')
    expect(read.json()).toMatchObject({ clients: [{ name: 'Küche' }] })
  })

  it('whose first row looks like a header and names no column is refused: no header becomes a device', async () => {
    const before = await total('clients')
    const answer = await csv('clients', 'Device name,Key\npump,9a1c7d4e5b3f2081\n')
    expect(answer.status).toBe(400)
    expect(answer.json<Report>().message).toContain(
      'line 1 looks like a header ("Device name") but names no column; columns are id, name',
    )
    expect(await total('clients')).toBe(before)
  })

  it.each([
    ['an open quote', 'one\n"two\n', 400],
    ['nothing', '', 400],
    ['empty lines alone', '\n\n', 400],
  ])('with %s is refused', async (_what, text, status) => {
    expect((await csv('clients', text)).status).toBe(status)
  })

  it('is rejected with another type, for a user without access, and above the limit of a request', async () => {
    const other = await newTenant(api)
    const url = `/${tenant.domainId}/clients/import`
    expect((await tenant.call('POST', url, 'a', { 'content-type': 'text/plain' })).status).toBe(415)
    expect((await other.call('POST', url, 'a', { 'content-type': 'text/csv' })).status).toBe(403)
    expect((await csv('clients', 'x\n'.repeat(10_001), other)).status).toBe(413)
  })

  it('of 10,000 clients is created by one request', async () => {
    const other = await newTenant(api)
    const answer = await csv(
      'clients',
      Array.from({ length: 10_000 }, (_, index) => `client ${index}`).join('\n'),
      other,
    )
    expect(answer.status).toBe(201)
    expect(answer.json()).toMatchObject({ total: 10_000 })
  })
})

describe('a file of connections', () => {
  async function ends(count: number) {
    const clients = await Promise.all(Array.from({ length: count }, () => tenant.newClient()))
    const channels = await Promise.all(Array.from({ length: count }, () => tenant.newChannel()))
    return { clients, channels, clientIds: clients.map(({ id }) => id), channelIds: channels.map(({ id }) => id) }
  }
  const connected = async (channelId: string) =>
    (await tenant.call('GET', `/${tenant.domainId}/clients?channel=${channelId}`)).json<{ total: number }>().total

  it('connects N clients with M channels: every pair of lines of CSV', async () => {
    const { clientIds, channelIds, clients } = await ends(3)
    const lines = clientIds.flatMap((clientId) => channelIds.map((channelId) => `${clientId},${channelId}`))
    const answer = await csv('connections', lines.join('\n'))
    expect(answer.json(), answer.text).toEqual({ total: 9 })
    for (const channelId of channelIds) expect(await connected(channelId)).toBe(3)
    expect(
      await publish(api, {
        secret: clients[0]?.credentials.secret ?? '',
        domain: tenant.domainId,
        channel: channelIds[2] ?? '',
      }),
    ).toBe(202)
    const { rows } = await api.database.pool.query("SELECT FROM journal WHERE operation = 'channel.connect'")
    expect(rows).toHaveLength(1)
  })

  it('reports the new connections first, and creates only the pairs of its lines', async () => {
    const { clientIds, channelIds } = await ends(2)
    const file = `client_id,channel_id\n${clientIds[0]},${channelIds[0]}\n${clientIds[1]},${channelIds[1]}\n`
    const url = `/${tenant.domainId}/connections/import?dry_run=true`
    const tried = await tenant.call('POST', url, file, { 'content-type': 'text/csv' })
    expect(tried.status, tried.text).toBe(200)
    expect(tried.json()).toMatchObject({
      total: 2,
      changes: [0, 1].map((at) => ({
        operation: 'channel.connect',
        attributes: { client_ids: [clientIds[at]], channel_ids: [channelIds[at]] },
      })),
    })
    const newPairs = (answer: typeof tried) =>
      answer.json<{ rows: { table: string; created: number }[] }>().rows.find(({ table }) => table === 'connections')
        ?.created
    expect(newPairs(tried)).toBe(2)
    expect(await connected(channelIds[0] ?? '')).toBe(0)
    const product = await tenant.call('POST', url, { subjects: clientIds, objects: channelIds })
    expect(newPairs(product)).toBe(4)
    expect((await csv('connections', file)).json()).toEqual({ total: 2 })
    // Half of them exist now.
    expect(newPairs(await tenant.call('POST', url, { subjects: clientIds, objects: channelIds }))).toBe(2)
    for (const channelId of channelIds) expect(await connected(channelId)).toBe(1)
  })

  it('accepts the JSON of every supported product version, as a list or a single object', async () => {
    const { clientIds, channelIds } = await ends(2)
    expect((await json('connections', { subjects: clientIds, objects: [channelIds[0]] })).json()).toEqual({ total: 2 })
    const list = [
      { client_ids: [clientIds[0]], channel_ids: [channelIds[1]], types: ['publish'] },
      { thing_id: clientIds[1], channel_id: channelIds[1] },
    ]
    expect((await json('connections', list)).json()).toEqual({ total: 2 })
    expect(await connected(channelIds[0] ?? '')).toBe(2)
    expect(await connected(channelIds[1] ?? '')).toBe(2)
  })

  it('with errors is rejected as a whole, and each error is reported with its line and reason', async () => {
    const { clientIds, channelIds } = await ends(2)
    const [client, channel] = [clientIds[0], channelIds[0]]
    await tenant.call('POST', `/${tenant.domainId}/channels/${channelIds[1]}/disable`)
    const malformed = await csv('connections', `${client},${channel}\nx,${channel}\n${client}\n`)
    expect(malformed.status).toBe(400)
    expect(malformed.json<Report>().details).toEqual([
      { path: 'line 2', message: 'client "x" is not a UUID in lower case' },
      { path: 'line 3', message: 'channel "" is not a UUID in lower case' },
    ])
    const unknown = newId()
    const other = await newTenant(api)
    const foreign = (await other.newClient()).id
    const refused = await csv(
      'connections',
      [`${client},${channel}`, '', `${unknown},${channel}`, `${client},${channelIds[1]}`, `${foreign},${channel}`].join(
        '\n',
      ),
    )
    expect(refused.status).toBe(422)
    expect(refused.json<Report>().details).toEqual([
      { path: 'line 3', message: `client ${unknown} does not exist in this domain` },
      { path: 'line 4', message: `channel ${channelIds[1]} is disabled` },
      { path: 'line 5', message: `client ${foreign} does not exist in this domain` },
    ])
    expect(await connected(channel ?? '')).toBe(0)
  })
})
