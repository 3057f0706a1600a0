// contract 9 "Bootstrap, provision, certs"; specification section 4 "Provision service"; decision 20
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Person, Requests } from './requests.ts'
import { A_STRING, A_UUID, UNKNOWN_ID, having, page, startRequests } from './requests.ts'

let requests: Requests
let ann: Person
let bob: Person
let domainId = ''
let client: { id: string; credentials: { secret: string } }
const channels: string[] = []
beforeAll(async () => {
  requests = await startRequests()
  ann = await requests.person()
  bob = await requests.person()
  domainId = (await ann('POST /domains -> 201', { sends: { name: 'plant' } })).id
  client = await ann(`POST /${domainId}/clients -> 201`, { sends: { name: 'pump' } })
  for (const name of ['control', 'data'])
    channels.push((await ann(`POST /${domainId}/channels -> 201`, { sends: { name, metadata: { type: name } } })).id)
})
afterAll(() => requests[Symbol.asyncDispose]())

describe('9.1 bootstrap', () => {
  const external = { external_id: 'serial-4711', external_key: 'key-of-serial-4711' }
  const configs = () => `/${domainId}/clients/configs`

  test('POST, GET, PUT, PATCH and DELETE /{d}/clients/configs', async () => {
    const whole = { client_id: client.id, ...external, channels, name: 'gateway', content: '{"interval":5}' }
    await ann(`POST ${configs()} -> 201`, {
      sends: whole,
      gives: '',
      headers: { location: `/clients/configs/${client.id}` },
    })
    await ann(`POST ${configs()} -> 409`, { sends: whole })
    await ann(`POST ${configs()} -> 400`, { sends: { ...whole, external_id: undefined } })
    await ann(`POST ${configs()} -> 400`, { sends: { ...whole, channels: [] } })
    await ann(`POST ${configs()} -> 400`, { sends: { ...whole, channels: [UNKNOWN_ID] } })
    await bob(`POST ${configs()} -> 403`, { sends: whole })
    await ann(`GET ${configs()}?state=0&name=gate -> 200`, {
      gives: page('configs', [having({ client_id: client.id, external_id: external.external_id, state: 0 })]),
    })
    await ann(`GET ${configs()}?limit=101 -> 400`)
    await ann(`GET ${configs()}/${client.id} -> 200`, {
      gives: {
        client_id: client.id,
        client_secret: client.credentials.secret,
        channels: [
          { id: channels[0], name: 'control', metadata: { type: 'control' } },
          { id: channels[1], name: 'data', metadata: { type: 'data' } },
        ],
        ...external,
        content: '{"interval":5}',
        name: 'gateway',
        state: 0,
      },
    })
    await ann(`GET ${configs()}/${UNKNOWN_ID} -> 404`)
    await ann(`PUT ${configs()}/${client.id} -> 200`, { sends: { name: 'gate', content: '{}' }, gives: '' })
    await ann(`PATCH ${configs()}/certs/${client.id} -> 200`, {
      sends: { client_cert: 'CERT', client_key: 'KEY', ca_cert: 'CA' },
      gives: { client_id: client.id, client_cert: 'CERT', ca_cert: 'CA' },
    })
    await ann(`PUT ${configs()}/connections/${client.id} -> 200`, { sends: { channels: [channels[1]] }, gives: '' })
    await ann(`PUT ${configs()}/connections/${client.id} -> 400`, { sends: { channels: [] } })
  })

  test('PUT /{d}/clients/state/{id}: 1 connects the client with its channels', async () => {
    await ann(`PUT /${domainId}/clients/state/${client.id} -> 200`, { sends: { state: 1 }, gives: '' })
    await ann(`PUT /${domainId}/clients/state/${client.id} -> 200`, { sends: { state: 1 } })
    await ann(`PUT /${domainId}/clients/state/${client.id} -> 400`, { sends: { state: 2 } })
    await ann(`GET /${domainId}/clients/${client.id}/channels -> 200`, {
      gives: { total: 1, channels: [having({ id: channels[1] })] },
    })
  })

  test('GET /clients/bootstrap/{external_id}: with the external key', async () => {
    await requests.device(external.external_key)(`GET /clients/bootstrap/${external.external_id} -> 200`, {
      gives: {
        client_id: client.id,
        client_secret: client.credentials.secret,
        channels: [having({ id: channels[1] })],
        content: '{}',
        client_cert: 'CERT',
        client_key: 'KEY',
        ca_cert: 'CA',
      },
    })
    await requests.nobody(`GET /clients/bootstrap/${external.external_id} -> 401`)
    await requests.device('another-external-key')(`GET /clients/bootstrap/${external.external_id} -> 403`)
    await requests.device(external.external_key)('GET /clients/bootstrap/unknown -> 404')
    await requests.device(external.external_key)('GET /clients/bootstrap -> 400')
    // No key of encryption is configured.
    await requests.device('00')(`GET /clients/bootstrap/secure/${external.external_id} -> 404`)
  })

  test('DELETE /{d}/clients/configs/{id}: the client stays', async () => {
    await ann(`DELETE ${configs()}/${client.id} -> 204`, { gives: '' })
    await ann(`GET ${configs()}/${client.id} -> 404`)
    await ann(`GET /${domainId}/clients/${client.id} -> 200`)
  })
})

describe('9.2 provision', () => {
  const order = (serial: string) => ({ external_id: serial, external_key: `the key of ${serial}-000` })
  const made = {
    clients: [{ id: A_UUID, name: 'gate', key: A_STRING, metadata: having({ external_id: A_STRING }) }],
    channels: [
      having({ id: A_UUID, metadata: having({ type: 'control' }) }),
      having({ id: A_UUID, metadata: having({ type: 'data' }) }),
    ],
  }

  test('POST /mapping is 200, POST /{d}/mapping 201', async () => {
    const token = await requests.nobody<{ access_token: string }>('POST /users/tokens/issue -> 201', {
      sends: { identity: ann.username, secret: ann.secret, domain_id: domainId },
    })
    const bound = requests.bearer(token.access_token)
    const { clients, whitelisted } = await bound<{ clients: { id: string }[]; whitelisted: Record<string, boolean> }>(
      'POST /mapping -> 200',
      { sends: { ...order('serial-1'), name: 'gate' }, gives: made },
    )
    expect(whitelisted).toEqual({ [clients[0]?.id ?? '']: true })
    await ann(`POST /${domainId}/mapping -> 201`, { sends: { ...order('serial-2'), name: 'gate' }, gives: made })
    await ann(`POST /${domainId}/mapping -> 409`, { sends: order('serial-2') })
    await ann(`POST /${domainId}/mapping -> 400`, { sends: { external_id: 'serial-3' } })
    await ann(`POST /${domainId}/mapping -> 415`, { sends: 'x', with: { 'content-type': 'text/plain' } })
    await bob(`POST /${domainId}/mapping -> 403`, { sends: order('serial-3') })
    await requests.nobody(`POST /${domainId}/mapping -> 401`, { sends: order('serial-3') })
    await requests.nobody('POST /mapping -> 401', { sends: order('serial-3') })
    await ann(`GET /${domainId}/mapping -> 200`)
    await requests.nobody(`GET /${domainId}/mapping -> 401`)
  })
})

describe('9.3 certificates', () => {
  test('POST /{d}/certs, GET /{d}/certs/{serial} and /{d}/serials/{client}, and revoking', async () => {
    const certs = `/${domainId}/certs`
    const issued = await ann<{ serial_number: string }>(`POST ${certs} -> 201`, {
      sends: { client_id: client.id, ttl: '24h' },
      gives: {
        client_id: client.id,
        certificate: expect.stringContaining('BEGIN CERTIFICATE'),
        key: expect.stringContaining('PRIVATE KEY'),
        serial_number: A_STRING,
        expiry_time: A_STRING,
        revoked: false,
      },
    })
    const serial = issued.serial_number
    await ann(`POST ${certs} -> 400`, { sends: { client_id: client.id, ttl: 'soon' } })
    await ann(`POST ${certs} -> 400`, { sends: { ttl: '1h' } })
    await ann(`POST ${certs} -> 404`, { sends: { client_id: UNKNOWN_ID } })
    await ann(`GET ${certs}/${serial} -> 200`, { gives: { client_id: client.id, key: '', serial_number: serial } })
    await ann(`GET ${certs}/00ff -> 404`)
    await bob(`GET ${certs}/${serial} -> 403`)
    await ann(`GET /${domainId}/serials/${client.id}?revoked=false -> 200`, {
      gives: page('certs', [having({ client_id: client.id, serial_number: serial })]),
    })
    await ann(`DELETE ${certs}/${serial} -> 200`, { gives: { revocation_time: A_STRING } })
    await ann(`GET /${domainId}/serials/${client.id}?revoked=true -> 200`, { gives: { total: 1 } })
    await ann(`POST ${certs}/${client.id}/revoke-all -> 200`, { gives: { revocation_time: expect.any(String) } })
  })
})
