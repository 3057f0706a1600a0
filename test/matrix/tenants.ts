/**
 * What another tenant learns. The owner of one domain asks every operation for what is in the domain of the twin, and for what does
 * not exist. Bodies are valid, so that the refusal is that of the authorization and not of the schema.
 */
import { newId } from '#core/ids.ts'
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { FullApp } from '../../tools/generate/full-app.ts'
import { undeclared } from './requests.ts'
import type { Answer, Requests } from './requests.ts'
import type { Row } from './rows.ts'
import { nobodys } from './twin.ts'
import type { Twin } from './twin.ts'
import { isInside } from './walk.ts'
import type { Furniture, People, World } from './world.ts'

/** 422: the call is in a domain of the caller, and its body names what is not in it (contract 2.6, decision 31b). */
const REFUSALS: ReadonlySet<number> = new Set([403, 404, 422])

type Json = Record<string, unknown>
/** Ids of what a tenant has, by the name of the parameter that takes them. */
type Ids = Readonly<Record<string, string>>

export type Foreign = { at: Furniture; ids: Ids }

/** One of everything that an operation can name, in the domain of the twin. */
export async function furnishForeign(twin: Twin, { made }: Requests, db: Queryable): Promise<Foreign> {
  const { owner, domain } = twin
  const make = async (url: string, body?: unknown) => await made<Json>(owner.token, 'POST', url, body)
  const [at] = await twin.mirror([nobodys()])
  if (at === undefined) throw new Error('nothing was made')
  const profile = await make(`/${domain.id}/clients/bootstrap/profiles`, {
    name: 'foreign-profile',
    content_format: 'json',
    content_template: '{}',
  })
  await make(`/${domain.id}/clients/configs`, {
    external_id: 'foreign-device',
    external_key: 'a-key-of-the-factory',
    client_id: at.client.id,
    channels: [at.channel.id],
  })
  const topic = `m/${domain.id}/c/${at.channel.id}`
  const certificate = await make(`/${domain.id}/certs/issue/${at.client.id}`, { ttl: '1h' })
  // The response has no body.
  await make('/subscriptions', { topic, contact: 'foreign-contact@example.com' })
  const { subscriptions } = await made<{ subscriptions: Json[] }>(owner.token, 'GET', '/subscriptions')
  const key = await make('/keys', { type: 3, duration: 3600 })
  const pat = await make('/pats', { name: 'foreign-token', duration: '24h' })
  const task = await make('/tasks', { name: 'foreign-task', domain_id: domain.id })
  const steps = [{ name: 'step' }]
  const workflow = await make('/workflows', { name: 'foreign-flow', domain_id: domain.id, tasks: steps })
  const rule = await make(`/${domain.id}/rules`, {
    name: 'foreign-rule',
    source: { type: 'messages', channels: [at.channel.id] },
    condition: 'value > 30.0',
  })
  const window = await make(`/${domain.id}/maintenance-windows`, {
    name: 'foreign-window',
    schedule: '0 3 * * 0',
    duration: '1h',
  })
  const alarm = newId()
  await sql`INSERT INTO alarms (id, domain_key, rule_id, rule_name, client_id, series_digest, severity, first_at, last_at)
    VALUES (${alarm}::uuid, ${domain.key}, ${String(rule['id'])}::uuid, 'foreign-rule', ${at.client.id}::uuid, '\\x00', 'major', now(), now())`.execute(
    db,
  )
  const worker = newId()
  await sql`
    INSERT INTO workers (id, name, domain_id, domain_key, boot_id, version, labels, os, arch, cpu_cores, memory_bytes, slots, backlog,
      runtimes, secret_hash, session_epoch, lease_until, last_alive_at, alive_history)
    VALUES (${worker}::uuid, 'foreign-worker', ${domain.id}, ${domain.key}, 'boot', '1', '{}', 'linux', 'x64', 1, 1, 1, 0, '{}', '\\x00', 1,
      now(), now(), '{}')`.execute(db)
  const ids = {
    domain_id: domain.id,
    client_id: at.client.id,
    channel_id: at.channel.id,
    group_id: at.group.id,
    other_group: at.other.id,
    role_id: at.roles.domain,
    user_id: owner.id,
    profile_id: String(profile['id']),
    config_id: at.client.id,
    rule_id: String(rule['id']),
    alarm_id: alarm,
    window_id: String(window['id']),
    serial: String(certificate['serial_number']),
    subscription_id: String(subscriptions[0]?.['id']),
    key_id: String(key['id']),
    pat_id: String(pat['id']),
    task_id: String(task['id']),
    workflow_id: String(workflow['id']),
    job_id: String(workflow['id']),
    worker_id: worker,
    proplet_id: worker,
    run_id: newId(),
    digest: `sha256:${'a'.repeat(64)}`,
  }
  const missing = Object.entries(ids).filter(([, id]) => id === 'undefined')
  if (missing.length > 0) throw new Error(`nothing was made for ${missing.map(([name]) => name).join(', ')}`)
  // Of a parent that both tenants have, a call would find its own.
  return { at: { ...at, parent: at.other, profile: ids.profile_id }, ids }
}

/** The same names for what nobody has. */
function unknownIds(ids: Ids): Ids {
  return Object.fromEntries(
    Object.entries(ids).map(([name, id]) => [
      name,
      name === 'digest'
        ? `sha256:${'b'.repeat(64)}`
        : id
            .replaceAll(/[0-9a-f]{8}-[0-9a-f-]{27}/g, newId())
            .replace(/(?<=^(?:domain_)?)[0-9A-Za-z]{20,32}$/, (text) => Array.from(text).toReversed().join('')),
    ]),
  )
}

/** The response without the ids that the call named. */
function bare({ status, text }: Answer, ids: readonly string[]): string {
  const longestFirst = ids.toSorted((one, other) => other.length - one.length)
  return `${status} ${longestFirst.reduce((rest, id) => rest.replaceAll(id, '<id>'), text)}`
}
const idsOf = (at: Furniture) => [
  ...[at.domain, at.parent, at.client, at.channel, at.group, at.child, at.other].map(({ id }) => id),
  ...Object.values(at.roles),
  ...(at.profile === undefined ? [] : [at.profile]),
]

const namesDomain = ({ url }: Row) => url.includes(':domain_id')
const namesEntity = ({ url, on }: Row) => on !== 'domain' || url.includes(':role_id')
/** Every user who is logged in can find users; strangers.test.ts and the matrix of accounts test what is shown of them. */
const isAboutUsers = (url: string) => /^\/(users|journal\/user)\//.test(url)

export type Tenancy = {
  /** Responses that tell what exists from what does not, or that are no refusal. */
  told: string[]
  undeclared: string[]
  asked: number
}

/** Every row, asked by the owner of one domain with what is in the domain of the twin. */
export async function askRowsForForeign(rows: readonly Row[], world: World, { at }: Foreign): Promise<Tenancy> {
  const tenancy: Tenancy = { told: [], undeclared: [], asked: 0 }
  const strangers: People = {
    bystander: world.twin.owner.id,
    leaver: world.twin.owner.id,
    outsider: world.twin.owner.id,
  }
  const ask = async (row: Row, named: Furniture, people: People) => {
    const { url, body } = row.request(named, people)
    const answer = await world.send(world.tokens.own, row.method, url, body)
    tenancy.undeclared.push(...undeclared(row, answer))
    if (world.twin.isShownIn(bare(answer, idsOf(named)))) tenancy.told.push(`${row.label} shows: ${answer.text}`)
    return { answer, text: bare(answer, idsOf(named)) }
  }
  const compare = (row: Row, where: string, there: string, nowhere: string) => {
    if (there !== nowhere) tenancy.told.push(`${row.label} ${where} tells: ${there} but ${nowhere}`)
  }
  for (const row of rows) {
    if (namesEntity(row) && namesDomain(row)) {
      // In the domain of the caller.
      const mine = world.domains.open
      const one = await ask(row, { ...at, domain: mine }, world.people)
      const other = await ask(row, { ...nobodys(), domain: mine }, world.people)
      compare(row, 'in the own domain', one.text, other.text)
      tenancy.asked++
    }
    if (isAboutUsers(row.url) || !(namesDomain(row) || namesEntity(row) || row.url === '/invitations')) continue
    // In the domain of the other tenant, in one that does not exist, and of nothing that exists.
    const one = await ask(row, at, strangers)
    const unknown = nobodys()
    compare(row, 'without any of it', one.text, (await ask(row, unknown, strangers)).text)
    if (namesDomain(row))
      compare(row, 'without the domain', one.text, (await ask(row, { ...at, domain: unknown.domain }, strangers)).text)
    const isRefused = namesDomain(row) ? one.answer.status === 403 : REFUSALS.has(one.answer.status)
    if (!isRefused) tenancy.told.push(`${row.label}: ${one.text}`)
    tenancy.asked++
  }
  return tenancy
}

/** A valid value of a schema, with ids where its names ask for some. */
function sample(schema: Json, name: string, ids: Ids): unknown {
  const single = name
    .replace(/s$/, '')
    .replace(/_ids$/, '_id')
    .replace(/^(member|child|children|parent|subject)_id$/, 'group_id')
  const known = ids[name] ?? ids[single] ?? (name === 'members' || name === 'member_ids' ? ids['user_id'] : undefined)
  if (Array.isArray(schema['enum'])) return (schema['enum'] as unknown[]).find((one) => one !== '')
  if (schema['const'] !== undefined) return schema['const']
  const variants = (schema['anyOf'] ?? schema['oneOf']) as Json[] | undefined
  if (variants !== undefined) return sample(variants.find((one) => one['type'] !== 'null') ?? {}, name, ids)
  switch (schema['type']) {
    case 'object': {
      const properties = (schema['properties'] ?? {}) as Record<string, Json>
      const required = new Set((schema['required'] ?? []) as string[])
      const wanted = Object.entries(properties).filter(([key]) => required.has(key) || /_ids?$/.test(key))
      return Object.fromEntries(wanted.map(([key, value]) => [key, sample(value, key, ids)]))
    }
    case 'array':
      return [sample((schema['items'] ?? {}) as Json, name, ids)]
    case 'integer':
    case 'number':
      return schema['minimum'] ?? 1
    case 'boolean':
      return true
    case 'string':
      return known ?? 'sample-of-a-text'
    default:
      return known ?? 'sample'
  }
}

const isOfManager = (url: string) => /^\/(tasks|runs|workers|proplets|workflows|jobs|modules)(\/|$)/.test(url)

/** Bodies whose meaning no schema tells; the rest comes from the schema. */
const BODIES: Readonly<Record<string, (ids: Ids) => unknown>> = {
  'POST /tasks/:task_id/invoke-many': () => ({ inputs: [[1]] }),
  'POST /tasks/:task_id/replay': (ids) => ({ channel_id: ids['channel_id'], from: 1, to: 2 }),
  'POST /tasks': (ids) => ({ name: 'x', domain_id: ids['domain_id'] }),
  'POST /workflows': (ids) => ({ name: 'x', domain_id: ids['domain_id'], tasks: [{ name: 'step' }] }),
  'POST /jobs': (ids) => ({ name: 'x', domain_id: ids['domain_id'], tasks: [{ name: 'step' }] }),
  'POST /publish': (ids) => ({ topic: `m/${ids['domain_id']}/c/${ids['channel_id']}`, payload: 'x' }),
  'POST /workers/tokens': (ids) => ({ domain_id: ids['domain_id'] }),
  'POST /modules': (ids) => ({ reference: 'example.com/a:1', domain_id: ids['domain_id'] }),
  'PUT /modules/policy': () => ({ signatures: 'off', keys: [] }),
  'POST /subscriptions': (ids) => ({
    topic: `m/${ids['domain_id']}/c/${ids['channel_id']}`,
    contact: 'stranger@example.com',
  }),
  'PUT /tasks/:task_id': () => ({ inputs: [1] }),
  'PATCH /pats/:pat_id/secret/reset': () => ({ duration: '1h' }),
}
/** What names a domain in its query. */
const QUERIES: Readonly<Record<string, (ids: Ids) => string>> = {
  'GET /runs': (ids) => `?domain_id=${ids['domain_id']}`,
  'GET /tasks': (ids) => `?domain_id=${ids['domain_id']}`,
  'GET /workflows': (ids) => `?domain_id=${ids['domain_id']}`,
  'GET /modules': (ids) => `?domain_id=${ids['domain_id']}`,
  'GET /modules/policy': (ids) => `?domain_id=${ids['domain_id']}`,
  'PUT /modules/policy': (ids) => `?domain_id=${ids['domain_id']}`,
  'POST /modules/inspect': (ids) => `?domain_id=${ids['domain_id']}`,
  'PUT /modules': (ids) => `?reference=example.com/a:1&domain_id=${ids['domain_id']}`,
  'DELETE /modules/:digest': (ids) => `?domain_id=${ids['domain_id']}`,
}

const fill = (url: string, ids: Ids) => url.replaceAll(/:([a-z_]+)/g, (whole, name: string) => ids[name] ?? whole)

/** Operations that have no row and name something. */
export async function askOthersForForeign(full: FullApp, world: World, { ids }: Foreign): Promise<Tenancy> {
  const tenancy: Tenancy = { told: [], undeclared: [], asked: 0 }
  for (const { method: methods, url, schema, config } of full.routes) {
    if (isAboutUsers(url) || (config?.action === undefined && !isOfManager(url))) continue
    for (const method of [methods].flat()) {
      if (isInside({ method, url, action: config?.action })) continue
      const label = `${method} ${url}`
      const request = (of: Ids) => {
        const body =
          BODIES[label]?.(of) ?? (schema?.body === undefined ? undefined : sample(schema.body as Json, '', of))
        return {
          url: `${fill(url, of)}${QUERIES[label]?.(of) ?? ''}`,
          ...(body === undefined || body === 'sample' ? {} : { body }),
        }
      }
      const nobodysIds = unknownIds(ids)
      const [there, nowhere] = [request(ids), request(nobodysIds)]
      const named = `${there.url} ${JSON.stringify(there.body ?? '')}`
      if (!Object.values(ids).some((id) => named.includes(id))) continue
      const one = await world.send(world.tokens.own, method, there.url, there.body)
      const other = await world.send(world.tokens.own, method, nowhere.url, nowhere.body)
      const [told, untold] = [bare(one, Object.values(ids)), bare(other, Object.values(nobodysIds))]
      if (!REFUSALS.has(one.status)) tenancy.told.push(`${label}: ${told}`)
      else if (told !== untold) tenancy.told.push(`${label} tells: ${told} but ${untold}`)
      if (world.twin.isShownIn(told)) tenancy.told.push(`${label} shows: ${told}`)
      for (const answer of [one, other]) tenancy.undeclared.push(...undeclared({ method, url }, answer))
      tenancy.asked++
    }
  }
  return tenancy
}
