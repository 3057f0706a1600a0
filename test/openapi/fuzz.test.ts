// openapi.json as a fuzzer reads it: schemathesis asks every operation what the document says and what it forbids, as the platform
// administrator and as a user with a domain of their own. No answer is a 5xx, of a status or of a form that the document lacks.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { openapiTools, runCommand, toolOf } from '../../tools/openapi-clients.ts'
import type { Installation, Whole } from '../harness/whole.ts'
import { createInstallation, startWhole } from '../harness/whole.ts'

const DOCUMENT = join(import.meta.dirname, '..', '..', 'openapi.json')
const SEED = 20_261
/** Both together, with their starts, stay below five minutes. */
const ADMIN_SECONDS = 165
const TENANT_SECONDS = 90
const CHECKS = ['not_a_server_error', 'response_schema_conformance', 'status_code_conformance']
/** Streams never end by themselves: an answer counts when this much of it is there. */
const REQUEST_SECONDS = 5
const SPARES = 3
/** Operations, of which there are more than 300. */
const MIN_SERVED = 80

type Report = {
  operations: { selected: number; tested: number; errored: number }
  test_cases: { generated: number }
  failures: { operation?: string; title?: string; message?: string }[]
  errors: unknown[]
}
type Ids = Readonly<Record<string, readonly string[]>>

let installation: Installation
let whole: Whole
let folder: string

const isThere = openapiTools() !== undefined
const isInCi = process.env['CI'] === 'true'

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'skein-fuzz-'))
  if (!isThere) return
  installation = await createInstallation({ SKEIN_API_PROCESSES: '1' })
  whole = await startWhole(installation)
})

afterAll(async () => {
  await whole?.[Symbol.asyncDispose]()
  installation?.[Symbol.dispose]()
  rmSync(folder, { recursive: true, force: true })
})

test.runIf(isInCi)('schemathesis is installed where tests decide', () => {
  expect(isThere).toBe(true)
})

test.skipIf(!isThere)('every response to the administrator is declared in the document', async () => {
  const authorization = await logIn('admin', 'the-first-admin')
  const report = await fuzz('admin', authorization, await makeThings(authorization, 'admin'), ADMIN_SECONDS)
  expect(report.operations.tested).toBe(report.operations.selected)
  expect(report.operations.selected).toBeGreaterThan(300)
  // A fuzzer that is only refused proves little.
  expect(await countServed()).toBeGreaterThan(MIN_SERVED)
})

test.skipIf(!isThere)('every response to a tenant is declared in the document', async () => {
  const registered = await whole.call('POST', '/users', {
    body: {
      first_name: 'A',
      last_name: 'Tenant',
      email: 'tenant@example.com',
      credentials: { username: 'tenant', secret: 'secret-of-the-tenant' },
    },
  })
  expect(registered.status, registered.text).toBe(201)
  const authorization = await logIn('tenant', 'secret-of-the-tenant')
  const report = await fuzz('tenant', authorization, await makeThings(authorization, 'tenant'), TENANT_SECONDS)
  expect(report.operations.tested).toBeGreaterThan(100)
})

async function logIn(username: string, password: string): Promise<string> {
  const answer = await whole.call('POST', '/users/tokens/issue', { body: { username, password } })
  expect(answer.status, answer.text).toBe(201)
  return `Bearer ${answer.json<{ access_token: string }>().access_token}`
}

/** Things of the caller's, by the parameters of paths that name them: what is deleted on the way leaves others. */
async function makeThings(authorization: string, name: string): Promise<Ids> {
  const make = async (path: string, body: object) => {
    const answer = await whole.call('POST', path, { authorization, body })
    expect(answer.status, `${path}: ${answer.text}`).toBe(201)
    return answer.json<{ id: string }>().id
  }
  const several = async (path: string, body: object) =>
    await Promise.all(Array.from({ length: SPARES }, async () => await make(path, body)))
  const domain = await make('/domains', { name, route: name })
  const clients = await several(`/${domain}/clients`, { name: 'pump' })
  const channels = await several(`/${domain}/channels`, { name: 'readings' })
  const groups = await several(`/${domain}/groups`, { name: 'hall' })
  return {
    domain_id: [domain],
    spare_domain: await Promise.all(
      Array.from({ length: SPARES }, async (_, index) => await make('/domains', { name, route: `${name}-${index}` })),
    ),
    client_id: clients,
    channel_id: channels,
    group_id: groups,
    entity_id: [...clients, ...channels, ...groups],
    task_id: await several('/tasks', { name: 'add', domain_id: domain }),
    workflow_id: await several('/workflows', { name: 'flow', domain_id: domain, tasks: [{ name: 'one' }] }),
  }
}

const SERVED = /^skein_requests_total\{protocol="http",route="([^"]+)",outcome="2\d\d"\}/gm

/** Routes that answered with a success at least once. */
async function countServed(): Promise<number> {
  const { text } = await whole.call('GET', '/metrics')
  const routes = new Set([...text.matchAll(SERVED)].map(([, route]) => route))
  console.log(`${routes.size} routes answered with a success`)
  return routes.size
}

/** Calls that would end the domain in which everything else happens: they get others. */
const ENDING = ['DELETE /domains/{domain_id}', 'POST /domains/{domain_id}/disable', 'POST /domains/{domain_id}/freeze']

async function fuzz(name: string, authorization: string, ids: Ids, seconds: number): Promise<Report> {
  const config = join(folder, `${name}.toml`)
  const reportFile = join(folder, `${name}.json`)
  writeFileSync(config, configOf(ids))
  const options = [
    ['--url', installation.base, '--header', `Authorization: ${authorization}`],
    ['--checks', CHECKS.join(','), '--phases', 'examples,coverage,fuzzing'],
    ['--seed', String(SEED), '--max-time', String(seconds), '--request-timeout', String(REQUEST_SECONDS)],
    ['--generation-database', 'none', '--suppress-health-check', 'all', '--warnings', 'off', '--no-color'],
    ['--report', 'json', '--report-json-path', reportFile],
  ].flat()
  const output = await runCommand(
    [toolOf('schemathesis'), '--config-file', config, 'run', DOCUMENT, ...options],
    folder,
  ).catch((error: unknown) => String(error))
  const report = JSON.parse(readFileSync(reportFile, 'utf8')) as Report
  console.log(
    `schemathesis as ${name}: ${report.operations.tested} of ${report.operations.selected} operations, ${report.test_cases.generated} requests`,
  )
  expect([report.failures, report.errors], output).toEqual([[], []])
  return report
}

/** TOML: parameters of paths take the values of their list, now and then others. */
function configOf({ spare_domain: spareDomains = [], ...ids }: Ids): string {
  const list = (values: readonly string[]) => `[${values.map((value) => `"${value}"`).join(', ')}]`
  return [
    '[dictionaries]',
    ...Object.entries(ids).map(([name, values]) => `${name} = { values = ${list(values)} }`),
    `spare_domain = { values = ${list(spareDomains)} }`,
    '[parameters]',
    ...Object.keys(ids).map((name) => `"path.${name}" = { dictionary = "${name}", probability = 0.9 }`),
    ...ENDING.flatMap((operation) => [
      '[[operations]]',
      `include-name = "${operation}"`,
      'parameters = { "path.domain_id" = { dictionary = "spare_domain", probability = 1.0 } }',
    ]),
    '',
  ].join('\n')
}
