/**
 * What a template may cost: every function is charged for what it is given and what it makes, half a character is refused, and
 * the preview has the budget that the device has (decision 0037).
 */
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it, test } from 'vitest'
import { newId } from '#core/ids.ts'
// The language itself has no face of its own to other rooms: it is asked where it is.
import { FUNCTIONS } from '../../api/provisioning/profiles/template/functions.ts'
import { TemplateFault, evaluate, parseTemplate } from '../../api/provisioning/profiles/template/index.ts'
import type { Value } from '../../api/provisioning/profiles/template/index.ts'
import { newTenant } from '../api/support.ts'
import type { Tenant } from '../api/support.ts'
import { startTestApi } from '../harness/api.ts'
import type { TestApi } from '../harness/api.ts'

const LARGE: Value = {
  list: Array.from({ length: 2000 }, (_, place) => place),
  text: '漢'.repeat(60_000),
  record: Object.fromEntries(Array.from({ length: 5000 }, (_, place) => [`k${place}`, place])),
}
const fill = (template: string, data: Value = LARGE) => evaluate(parseTemplate(template), data, { isJson: false })

/** Arguments of functions that do not take texts in every place. */
const ARGUMENTS: Readonly<Record<string, string>> = {
  index: '$.record "k1"',
  required: '"text" $.text',
}

describe('a function', () => {
  test.each(Object.keys(FUNCTIONS))('%s is charged for its input', (name) => {
    const { least } = FUNCTIONS[name as keyof typeof FUNCTIONS]
    const given = ARGUMENTS[name] ?? Array.from({ length: Math.max(least, 1) }, () => '$.text').join(' ')
    // A few calls are nothing; a hundred million characters are too much, whatever is made of them.
    if (name !== 'printf') fill(`{{$x := ${name} ${given}}}`)
    const calls = `{{range .list}}{{$x := ${name === 'printf' ? `${name} "%s" $.text` : `${name} ${given}`}}}{{end}}`
    expect(() => fill(calls)).toThrow('the template exceeds the limit of steps')
  })

  it('is charged for its output: an escaped text is nine times as long', () => {
    const data: Value = { list: Array.from({ length: 25 }, (_, place) => place), text: '漢'.repeat(12_000) }
    expect(() => fill('{{range .list}}{{$x := len $.text}}{{end}}', data)).not.toThrow()
    expect(() => fill('{{range .list}}{{$x := urlquery $.text}}{{end}}', data)).toThrow(
      'the template exceeds the limit of steps',
    )
  })

  it('fails with its own error for any input', () => {
    const value = fc.oneof(fc.string({ unit: 'binary' }), fc.double(), fc.boolean(), fc.constant(null), fc.jsonValue())
    const name = fc.constantFrom(...Object.keys(FUNCTIONS))
    fc.assert(
      fc.property(name, value, value, fc.string({ unit: 'binary' }), (called, one, other, loose) => {
        // `unit: binary` makes whole characters; halves come from the cut.
        const data = { one, other, loose: loose.slice(0, 1) } as Value
        for (const given of ['.one', '.one .other', '"%q %d" .one .other', '.loose', '.loose .one', '"x" .loose']) {
          try {
            fill(`{{${called} ${given}}}`, data)
          } catch (error) {
            expect(error).toBeInstanceOf(TemplateFault)
          }
        }
      }),
      { numRuns: 2000 },
    )
  })
})

test('a template with too many tokens is not parsed', () => {
  for (const template of ['{{1}}'.repeat(20_001), `{{print ${'(1) '.repeat(10_000)}}}`, `{{${'.a'.repeat(20_001)}}}`])
    expect(() => parseTemplate(template)).toThrow('the template is limited to 20000 tokens')
})

describe('rendering', () => {
  let api: TestApi
  let tenant: Tenant
  beforeAll(async () => {
    api = await startTestApi()
    tenant = await newTenant(api)
  })
  afterAll(() => api[Symbol.asyncDispose]())

  const at = (path = '') => `/${tenant.domainId}/clients/bootstrap/profiles${path}`
  const create = (template: string, fields: object = {}) =>
    tenant.call('POST', at(), { name: 'p', content_template: template, ...fields })

  /** A device of the profile: what the preview of it and the device itself are answered. */
  async function enrol(profileId: string, variables: object = {}) {
    const external = { external_id: newId(), external_key: newId() }
    const body = { ...external, profile_id: profileId, render_context: variables }
    const made = await tenant.call('POST', `/${tenant.domainId}/clients/configs`, body)
    expect(made.status, made.text).toBe(201)
    const id = String(made.headers['location']).split('/').at(-1) ?? ''
    return {
      device: () => api.as(`Client ${external.external_key}`)('GET', `/clients/bootstrap/${external.external_id}`),
      preview: (extra: object = {}) =>
        tenant.call('POST', at(`/${profileId}/render-preview`), { config_id: id, ...extra }),
    }
  }

  it('has one budget: what exceeds it for the device exceeds it for the preview, and vice versa', async () => {
    const template = '{{range .Vars.list}}{{$x := urlquery $.Vars.text}}{{end}}'
    const { id } = (await create(template)).json<{ id: string }>()
    const variables = (length: number) => ({
      list: Array.from({ length: 40 }, (_, place) => place),
      text: '漢'.repeat(length),
    })
    for (const [length, status] of [
      [4_000, 200],
      [10_000, 422],
    ] as const) {
      const { device, preview } = await enrol(id, variables(length))
      const answers = [await device(), await preview()]
      expect(answers.map((answer) => answer.status)).toEqual([status, status])
      if (status === 422)
        for (const { text } of answers) expect(text).toContain('the template exceeds the limit of steps')
    }
  })

  it('accepts no more in the preview than a device could send', async () => {
    const { id } = (await create('{{len .Bindings.a.Snapshot}}')).json<{ id: string }>()
    const sample = (length: number) => ({
      bindings: [{ slot: 'a', type: 'channel', snapshot: { text: 'x'.repeat(length) } }],
      config: { render_context: { text: 'x'.repeat(length) } },
    })
    const preview = (length: number) => tenant.call('POST', at(`/${id}/render-preview`), sample(length))
    expect((await preview(1_000)).status).toBe(200)
    expect((await preview(600_000)).status).not.toBeLessThan(400)
    expect((await preview(600_000)).status).toBeLessThan(500)
  })

  it.each([
    ['in a function', '{{urlquery "\\ud800"}}'],
    ['as it is', '{{"\\udc00 x"}}'],
    ['of two halves that are none', '{{"\\ud83d"}}{{"\\ude00"}}'],
  ])('refuses half a character %s: 400 when it is written, 422 if it is stored already', async (_what, template) => {
    const refused = await create(template)
    expect(refused.status, refused.text).toBe(400)
    expect(refused.text).toContain('lone surrogate')
    const { id } = (await create('{{1}}')).json<{ id: string }>()
    await api.database.pool.query(`UPDATE bootstrap_profiles SET content_template = $1 WHERE id = $2`, [template, id])
    const { device, preview } = await enrol(id)
    for (const answer of [await device(), await preview()]) {
      expect(answer.status, answer.text).toBe(422)
      expect(answer.text).toContain('lone surrogate')
    }
    expect((await create('{{"\\ud83d\\ude00"}}')).status).toBe(201)
  })
})
