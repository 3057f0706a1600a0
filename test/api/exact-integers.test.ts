/** Integers above 2^53 in free JSON (contract section 14, decision 89). */
import { describe, expect, test } from 'vitest'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { newTenant } from './support.ts'

const SERIAL = '9007199254740993'
const METADATA = `{"serial":${SERIAL},"deep":{"list":[18446744073709551615,1,"${SERIAL}"]}}`

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))
const JSON_BODY = { 'content-type': 'application/json' }

describe.each(['clients', 'channels', 'groups'])('metadata of %s', (kind) => {
  const path = (id = '') => `/${tenant.domainId}/${kind}${id === '' ? '' : `/${id}`}`

  test('keeps them in every answer, after a change, and when it is searched', async () => {
    const made = await tenant.call('POST', path(), `{"name":"one","metadata":${METADATA}}`, JSON_BODY)
    expect(made.status, made.text).toBe(201)
    expect(made.text).toContain(SERIAL)
    const { id } = made.json<{ id: string }>()
    const found = await tenant.call('GET', `${path()}?metadata=${encodeURIComponent(`{"serial":${SERIAL}}`)}`)
    expect(found.json<{ total: number }>().total).toBe(1)
    const near = await tenant.call('GET', `${path()}?metadata=${encodeURIComponent('{"serial":9007199254740992}')}`)
    expect(near.json<{ total: number }>().total).toBe(0)
    const changed = await tenant.call('PATCH', path(id), '{"name":"two"}', JSON_BODY)
    for (const answer of [await tenant.call('GET', path(id)), found, changed]) {
      expect(answer.text).toContain(`"serial":${SERIAL}`)
      expect(answer.text).toContain('18446744073709551615')
    }
  })

  test('is refused as a whole when it is such a number', async () => {
    const refused = await tenant.call('POST', path(), `{"name":"x","metadata":${SERIAL}}`, JSON_BODY)
    expect(refused.status).toBe(400)
    expect(refused.json()).toMatchObject({
      details: [{ path: '/metadata', message: expect.stringContaining('send it as a text') as string }],
    })
  })
})

test('files keep them: CSV and JSON', async () => {
  const csv = `name,metadata\nfrom-csv,"${METADATA.replaceAll('"', '""')}"\n`
  const answers = [
    await tenant.call('POST', `/${tenant.domainId}/clients/import`, csv, { 'content-type': 'text/csv' }),
    await tenant.call(
      'POST',
      `/${tenant.domainId}/clients/import`,
      `[{"name":"from-json","metadata":${METADATA}}]`,
      JSON_BODY,
    ),
  ]
  for (const answer of answers) {
    expect(answer.status, answer.text).toBe(201)
    const [client] = answer.json<{ clients: { id: string }[] }>().clients
    expect((await tenant.call('GET', `/${tenant.domainId}/clients/${client?.id}`)).text).toContain(`"serial":${SERIAL}`)
  }
  const bad = `[{"name":"good"},{"name":"bad","metadata":${SERIAL}}]`
  const refused = await tenant.call('POST', `/${tenant.domainId}/clients/import`, bad, JSON_BODY)
  expect(refused.json()).toMatchObject({ details: [{ path: 'item 2' }] })
})

test('a profile keeps them in its defaults, and refuses to compute with them', async () => {
  const profiles = `/${tenant.domainId}/clients/bootstrap/profiles`
  const body = (template: string) =>
    `{"name":"p","content_format":"go-template","content_template":${JSON.stringify(template)},"defaults":${METADATA}}`
  const made = await tenant.call('POST', profiles, body('{{ .Vars.serial }}'), JSON_BODY)
  expect(made.status, made.text).toBe(201)
  expect(made.text).toContain(`"serial":${SERIAL}`)
  const { id } = made.json<{ id: string }>()
  expect((await tenant.call('GET', `${profiles}/${id}`)).text).toContain(`"serial":${SERIAL}`)
  const rendered = await tenant.call(
    'POST',
    `${profiles}/${id}/render-preview`,
    `{"config":{"id":"sample","external_id":"gw"},"render_context":{"serial":${SERIAL}}}`,
    JSON_BODY,
  )
  expect(rendered.status, rendered.text).toBe(422)
  expect(rendered.text).toContain('.Vars.serial is an integer above 2^53: store it as a text')
})

test.each([
  ['application/yaml', `name: yaml\ncontent_template: x\ndefaults: { serial: ${SERIAL} }\n`],
  ['application/toml', `name = "toml"\ncontent_template = "x"\n[defaults]\nserial = ${SERIAL}\n`],
])('a profile in %s keeps them', async (type, text) => {
  const path = `/${tenant.domainId}/clients/bootstrap/profiles/upload`
  const made = await tenant.call('POST', path, text, { 'content-type': type })
  expect(made.status, made.text).toBe(201)
  expect(made.text).toContain(`"serial":${SERIAL}`)
})
