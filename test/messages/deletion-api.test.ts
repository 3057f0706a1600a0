/** DELETE /{domain}/channels/{channel}/messages (contract decision 54): permissions, refusals and responses. */
import { expect, test } from 'vitest'
import { useWorld } from '../harness/world.ts'
import { DOMAIN_ROUTE, startPlant } from './support.ts'

const plant = useWorld(() => startPlant())

async function aChannel() {
  const device = await plant.newConnectedDevice()
  const asDevice = plant.api.as(`Client ${device.secret}`)
  const path = `/m/${plant.domainId}/c/${device.channelId}`
  const sent = await asDevice('POST', path, '[{"n":"a","t":1700000000,"v":1},{"n":"a","t":1700000001,"v":2}]', {
    'content-type': 'application/senml+json',
  })
  expect(sent.status).toBe(202)
  const url = `/${plant.domainId}/channels/${device.channelId}/messages`
  const total = async () => (await asDevice('GET', path)).json<{ total: number }>().total
  return { device, asDevice, url, total }
}

test('a caller who may delete the channel deletes its messages, all of them or a range', async () => {
  const { url, total } = await aChannel()
  expect((await plant.owner.call('DELETE', `${url}?to=1700000001`)).status).toBe(204)
  expect(await total()).toBe(1)
  expect((await plant.owner.call('DELETE', `${url}?from=0`)).status).toBe(204)
  expect(await total()).toBe(0)
  // Repeating it is harmless.
  expect((await plant.owner.call('DELETE', `${url}?from=0`)).status).toBe(204)
})

test('a dry run counts what a deletion would delete, and deletes nothing', async () => {
  const { device, asDevice, url, total } = await aChannel()
  for (const body of ['one', 'two', 'three'])
    expect(
      (await asDevice('POST', `/m/${plant.domainId}/c/${device.channelId}`, body, { 'content-type': 'text/plain' }))
        .status,
    ).toBe(202)
  const journal = async () =>
    (await plant.api.database.pool.query(`SELECT count(*) FROM journal WHERE operation = 'channel.remove_messages'`))
      .rows
  const before = await journal()
  const report = async (query: string) => {
    const answer = await plant.owner.call('DELETE', `${url}?dry_run=true&${query}`)
    expect(answer.status, answer.text).toBe(200)
    return answer.json()
  }
  const rows = (records: number, payloads: number) =>
    Object.entries({ records, payloads }).flatMap(([table, deleted]) =>
      deleted === 0 ? [] : [{ table, created: 0, updated: 0, deleted }],
    )
  expect(await report('from=0')).toEqual({
    total: 1,
    changes: [{ operation: 'channel.remove_messages', id: device.channelId, attributes: { from: 0 } }],
    rows: rows(2, 3),
  })
  expect(await report('to=1700000001')).toMatchObject({ rows: rows(1, 0) })
  expect(await report(`publisher=${device.id}`)).toMatchObject({ rows: rows(2, 3) })
  expect(await report('publisher=00000000-0000-4000-8000-000000000000')).toMatchObject({ total: 1, rows: [] })
  expect(await total()).toBe(2)
  expect(await journal()).toEqual(before)
  const stranger = await plant.api.newUser()
  expect((await stranger.call('DELETE', `${url}?dry_run=true&from=0`)).status).toBe(403)
  expect((await plant.owner.call('DELETE', `${url}?dry_run=true`)).status).toBe(400)
  expect((await plant.owner.call('DELETE', `${url}?from=0`)).status).toBe(204)
  expect(await report('from=0')).toMatchObject({ rows: [] })
})

test('the domain may be given by its route, as on other paths of messages', async () => {
  const { device, total } = await aChannel()
  const url = `/${DOMAIN_ROUTE}/channels/${device.channelId}/messages?from=0`
  const stranger = await plant.api.newUser()
  expect((await stranger.call('DELETE', url)).status).toBe(403)
  expect((await plant.owner.call('DELETE', url.replace(DOMAIN_ROUTE, 'no-such-route'))).status).toBe(403)
  expect((await plant.owner.call('DELETE', url.replace(device.channelId, 'no-such-channel'))).status).toBe(404)
  expect((await plant.owner.call('DELETE', url)).status).toBe(204)
  expect(await total()).toBe(0)
})

test('the filter publisher deletes only the messages of that publisher', async () => {
  const { device, url, total } = await aChannel()
  const stranger = '00000000-0000-4000-8000-000000000000'
  expect((await plant.owner.call('DELETE', `${url}?publisher=${stranger}`)).status).toBe(204)
  expect(await total()).toBe(2)
  expect((await plant.owner.call('DELETE', `${url}?publisher=${device.id}`)).status).toBe(204)
  expect(await total()).toBe(0)
})

test('a deletion without a filter or with an invalid number is refused and deletes nothing', async () => {
  const { url, total } = await aChannel()
  for (const query of [
    '',
    '?publisher=',
    '?from=yesterday',
    '?from=1&from=2',
    '?from=1&name=temp',
    '?to=9e9&subtopic=a',
  ])
    expect((await plant.owner.call('DELETE', `${url}${query}`)).status, query).toBe(400)
  expect(await total()).toBe(2)
})

// contract decisions 84 and 85
test('a deletion with an empty or unknown parameter is refused, says why, and deletes nothing', async () => {
  const { url, total } = await aChannel()
  for (const [query, message] of [
    ['?from=1&publisher=', 'publisher must not be empty'],
    ['?from=1&publisher_id=x', 'publisher_id is unknown: did you mean publisher?'],
    ['?from=1&publishr=x', 'publishr is unknown: did you mean publisher?'],
    ['?from=1&subtopic=a', 'subtopic is unknown: this call accepts from, to, publisher, dry_run'],
    ['?from=1&without=publisher', 'without is unknown: this call accepts from, to, publisher, dry_run'],
    ['?from=1&dryRun=true', 'dryRun is unknown: did you mean dry_run?'],
    ['?from=1&dry_run[]=true', 'dry_run[] is unknown: did you mean dry_run?'],
  ] as const) {
    const answer = await plant.owner.call('DELETE', `${url}${query}`)
    expect(answer.json(), query).toMatchObject({ error: 'malformed', message })
  }
  expect(await total()).toBe(2)
})

test('devices, strangers and members without the action delete nothing', async () => {
  const { asDevice, url, total } = await aChannel()
  expect((await plant.api.anonymous('DELETE', `${url}?from=0`)).status).toBe(401)
  expect((await asDevice('DELETE', `${url}?from=0`)).status).toBe(401)
  const user = await plant.api.newUser()
  expect((await user.call('DELETE', `${url}?from=0`)).status).toBe(403)
  const domainRole = await plant.owner.call('POST', `/domains/${plant.domainId}/roles`, {
    role_name: `readers ${user.username}`,
    optional_actions: ['read', 'channel_read'],
    optional_members: [user.id],
  })
  expect(domainRole.status, domainRole.text).toBe(201)
  expect((await user.call('DELETE', `${url}?from=0`)).status).toBe(403)
  const unknown = url.replace(/channels\/[^/]+/, 'channels/00000000-0000-4000-8000-000000000000')
  expect((await plant.owner.call('DELETE', `${unknown}?from=0`)).status).toBe(404)
  expect(await total()).toBe(2)
})

test('the journal of the channel records who deleted what', async () => {
  const { device, url } = await aChannel()
  await plant.owner.call('DELETE', `${url}?from=5&to=1800000000&publisher=${device.id}`)
  const journal = await plant.owner.call(
    'GET',
    `/${plant.domainId}/journal/channel/${device.channelId}?operation=channel.remove_messages&with_attributes=true`,
  )
  const { journals } = journal.json<{ journals: { attributes: Record<string, unknown> }[] }>()
  expect(journals).toHaveLength(1)
  expect(journals[0]?.attributes).toMatchObject({
    id: device.channelId,
    from: 5,
    to: 1_800_000_000,
    publisher: device.id,
  })
})
