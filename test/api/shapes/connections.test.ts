// contract 4.2 "connect", its older forms, and the specification's older connection endpoints; decisions 16, 16b, 52
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { Person, Requests } from './requests.ts'
import { A_STRING, UNKNOWN_ID, having, page, startRequests } from './requests.ts'

let requests: Requests
let ann: Person
let d = ''
let client = { id: '', secret: '' }
let channel = ''
beforeAll(async () => {
  requests = await startRequests()
  ann = await requests.person()
  d = (await ann('POST /domains -> 201', { sends: { name: 'plant' } })).id
})
afterAll(() => requests[Symbol.asyncDispose]())
beforeEach(async () => {
  const made = await ann<{ id: string; credentials: { secret: string } }>(`POST /${d}/clients -> 201`, { sends: {} })
  client = { id: made.id, secret: made.credentials.secret }
  channel = (await ann(`POST /${d}/channels -> 201`, { sends: {} })).id
})

const PACK = { sends: [{ n: 'heat', u: 'K', v: 290 }], with: { 'content-type': 'application/senml+json' } }

/** What the device may do, asked of the message paths. */
async function expectRights(may: { publish: boolean; subscribe: boolean }): Promise<void> {
  const device = requests.device(client.secret)
  await device(`POST /http/m/${d}/c/${channel} -> ${may.publish ? 202 : 403}`, PACK)
  await device(`GET /m/${d}/c/${channel} -> ${may.subscribe ? 200 : 403}`)
}

describe('every form of connecting and the form that undoes it', () => {
  const both = { publish: true, subscribe: true }
  const none = { publish: false, subscribe: false }
  const pair = () => ({ client_ids: [client.id], channel_ids: [channel] })
  const older = () => ({ subjects: [client.id], objects: [channel] })

  test.each([
    [
      'POST /{d}/channels/connect, with types',
      () => `/${d}/channels`,
      () => ({ ...pair(), types: ['publish', 'subscribe'] }),
    ],
    ['… types in any case', () => `/${d}/channels`, () => ({ ...pair(), types: ['Publish', 'SUBSCRIBE'] })],
    ['… without types: both', () => `/${d}/channels`, pair],
    [
      '… as an array of them',
      () => `/${d}/channels`,
      () => [
        { ...pair(), types: ['publish'] },
        { ...pair(), types: ['subscribe'] },
      ],
    ],
    ['… subjects and objects', () => `/${d}/channels`, older],
    ['… actions of the oldest', () => `/${d}/channels`, () => ({ ...older(), actions: ['m_write', 'm_read'] })],
    [
      'POST /{d}/channels/{c}/connect',
      () => `/${d}/channels/${channel}`,
      () => ({ client_ids: [client.id], types: ['publish', 'subscribe'] }),
    ],
    ['POST /channels/connect', () => '/channels', pair],
    ['POST /connect', () => '', pair],
  ])('%s', async (_form, base, body) => {
    await ann(`POST ${base()}/connect -> 201`, { sends: body(), gives: '' })
    await expectRights(both)
    await ann(`POST ${base()}/connect -> 201`, { sends: body(), gives: '' })
    await ann(`POST ${base()}/disconnect -> 204`, { sends: body(), gives: '' })
    await expectRights(none)
    await ann(`POST ${base()}/disconnect -> 204`, { sends: body(), gives: '' })
  })

  test.each([
    ['PUT and DELETE /channels/{ch}/clients/{cl}', () => ''],
    ['… with the domain', () => `/${d}`],
  ])('%s', async (_form, base) => {
    const path = `${base()}/channels/${channel}/clients/${client.id}`
    await ann(`PUT ${path} -> 201`, {
      gives: {
        owner_id: ann.id,
        subject: client.id,
        object: channel,
        actions: expect.arrayContaining(['m_write', 'm_read']),
      },
    })
    await expectRights(both)
    await ann(`DELETE ${path} -> 204`, { gives: '' })
    await expectRights(none)
  })

  test('one type alone', async () => {
    await ann(`POST /${d}/channels/connect -> 201`, { sends: { ...pair(), types: ['publish'] } })
    await expectRights({ publish: true, subscribe: false })
    await ann(`POST /${d}/channels/connect -> 201`, { sends: { ...older(), actions: ['m_read'] } })
    await ann(`POST /${d}/channels/disconnect -> 204`, { sends: { ...pair(), types: ['publish'] } })
    await expectRights({ publish: false, subscribe: true })
  })
})

test('invalid connections, which connect nothing', async () => {
  const body = { client_ids: [client.id], channel_ids: [channel], types: ['publish'] }
  const connect = `POST /${d}/channels/connect`
  await ann(`${connect} -> 400`, { sends: { ...body, types: ['listen'] } })
  await ann(`${connect} -> 400`, { sends: { ...body, client_ids: [] } })
  await ann(`${connect} -> 400`, { sends: { ...body, channel_ids: [] } })
  await ann(`${connect} -> 400`, { sends: { ...body, types: [] } })
  // An unknown id and a foreign one are the same 422 (decision 16b).
  await ann(`${connect} -> 422`, {
    sends: { ...body, client_ids: [client.id, UNKNOWN_ID] },
    gives: { message: A_STRING },
  })
  await ann(`POST /${d}/channels/${channel}/disable -> 200`)
  await ann(`${connect} -> 422`, { sends: body })
  await ann(`POST /${d}/channels/${channel}/enable -> 200`)
  await ann(`GET /${d}/channels/${channel}/clients -> 200`, { gives: page('clients', []) })
  const stranger = await requests.person()
  await stranger(`${connect} -> 403`, { sends: body })
})

test('both forms of the lists of connections', async () => {
  await ann(`POST /${d}/channels/connect -> 201`, { sends: { client_ids: [client.id], channel_ids: [channel] } })
  for (const base of ['', `/${d}`]) {
    await ann(`GET ${base}/channels/${channel}/clients -> 200`, { gives: page('clients', [having({ id: client.id })]) })
    await ann(`GET ${base}/clients/${client.id}/channels -> 200`, {
      gives: page('channels', [having({ id: channel })]),
    })
  }
  await ann(`GET /${d}/clients?channel=${channel}&connection_type=publish -> 200`, {
    gives: page('clients', [having({ id: client.id })]),
  })
  await ann(`GET /${d}/channels?client=${client.id} -> 200`, { gives: page('channels', [having({ id: channel })]) })
})
