/** A certificate names no client but its own: readers outside take the common name for who is calling. */
import { X509Certificate } from 'node:crypto'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { newTenant } from '../api/support.ts'
import type { Tenant } from '../api/support.ts'
import { startTestApi } from '../harness/api.ts'
import type { TestApi } from '../harness/api.ts'

let api: TestApi
let [tenant, victim]: Tenant[] = []
let own: string
let foreign: string
beforeAll(async () => {
  api = await startTestApi()
  ;[tenant, victim] = [await newTenant(api), await newTenant(api)]
  ;[own, foreign] = [(await tenant.newClient()).id, (await victim.newClient()).id]
})
afterAll(async () => await api[Symbol.asyncDispose]())

const issue = (options: object) => tenant?.call('POST', `/${tenant.domainId}/certs/issue/${own}`, { options })

const FORMS: readonly [string, (id: string) => string][] = [
  ['plain', (id) => id],
  ['capitals', (id) => id.toUpperCase()],
  ['without dashes', (id) => id.replaceAll('-', '')],
  ['as a URN', (id) => `urn:uuid:${id}`],
  ['as a URN in capitals', (id) => `URN:UUID:${id.toUpperCase()}`],
  ['in braces', (id) => `{${id}}`],
  ['between blanks', (id) => ` ${id}\t`],
  ['in full width', (id) => id.replaceAll(/[0-9a-f]/g, (c) => String.fromCodePoint((c.codePointAt(0) ?? 0) + 0xfee0))],
]

test.each(FORMS)('the id of a client of another tenant is refused as common name, %s', async (_form, write) => {
  const answer = await issue({ common_name: write(foreign) })
  expect(answer?.status, answer?.text).toBe(400)
  expect(answer?.json()).toMatchObject({ error: 'malformed', details: [{ path: '/options/common_name' }] })
})

test('an id that does not exist is refused with the same message, which reveals nothing', async () => {
  const unknown = await issue({ common_name: 'ffffffff-ffff-4fff-bfff-ffffffffffff' })
  expect(unknown?.text).toBe((await issue({ common_name: foreign }))?.text)
})

test('the id of another client is refused as DNS name too', async () => {
  expect((await issue({ dns_names: ['pump.example.com', foreign] }))?.status).toBe(400)
  expect((await issue({ dns_names: [foreign.replaceAll('-', '')] }))?.status).toBe(400)
})

test('the own id and other names are accepted', async () => {
  for (const name of [own, own.toUpperCase(), 'pump 7', '']) {
    const answer = await issue({ common_name: name, dns_names: ['pump.example.com'] })
    expect(answer?.status, answer?.text).toBe(201)
    const { subject } = new X509Certificate(answer?.json<{ certificate: string }>().certificate ?? '')
    expect(subject).toBe(`CN=${name === '' ? own : name}`)
  }
})
