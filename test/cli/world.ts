/**
 * What the placeholders of examples stand for: fresh entities of a running platform, made over HTTP, so that every example of
 * the help can be tried as it is written.
 */
import { randomBytes, randomUUID } from 'node:crypto'
import { spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { COMPILE_CACHE } from '../harness/compile-cache.ts'
import { until } from '../harness/until.ts'
import type { Answer, Installation, Whole } from '../harness/whole.ts'

export const ADMIN_SECRET = 'the-first-admin'
const ROOT = join(import.meta.dirname, '..', '..')
const MODULE = join(ROOT, 'examples', 'add', 'add.wasm')
const PASSWORD = '12345678'
/** As many signs of life does a worker show at most. */
const SHOWN_BEATS = 10
/** So that a worker is alive when it is looked at, however busy the machine is. */
export const PATIENT_WORKER = { SKEIN_WORKER_HEARTBEAT: '2s', SKEIN_WORKER_LEASE: '20s' }

type Json = Record<string, unknown>

export type World = AsyncDisposable & {
  readonly domain: string
  readonly token: string
  /** A new value for a placeholder; the ids of one command belong together (`<role_id>` is a role of its `<client_id>`). */
  value(placeholder: string, before: ReadonlyMap<string, string>): Promise<string>
  call(method: string, path: string, body?: unknown): Promise<Json>
  manager(method: string, path: string, body?: unknown): Promise<Json>
  newUser(): Promise<{ id: string; email: string; username: string; token: string; refresh: string }>
  newDomain(): Promise<string>
  /** The id of a group with a client. */
  newFilledGroup(): Promise<string>
  /** The token of the newest mail to this address. */
  mailToken(email: string): Promise<string>
  /** Starts a task and waits for its end. */
  finish(taskId: string): Promise<void>
  /** A reference that the registry does not hold yet. */
  newReference(): string
  /** A worker of its own process. */
  newWorker(): Promise<string>
}

export async function createWorld(
  whole: Whole,
  managerUrl: string,
  installation: Installation,
  registryHost: string,
): Promise<World> {
  const { dataDir } = installation
  const workers: { process: ChildProcess; folder: string }[] = []
  const read = (answer: Answer, what: string): Json => {
    if (answer.status >= 400) throw new Error(`${what} answered ${answer.status}: ${answer.text}`)
    return answer.text === '' ? {} : answer.json<Json>()
  }
  const issued = read(
    await whole.call('POST', '/users/tokens/issue', { body: { identity: 'admin', secret: ADMIN_SECRET } }),
    'login',
  )
  const token = String(issued['access_token'])
  const authorization = `Bearer ${token}`
  const call = async (method: string, path: string, body?: unknown) =>
    read(
      await whole.call(method, path, { authorization, ...(body === undefined ? {} : { body }) }),
      `${method} ${path}`,
    )
  const manager = async (method: string, path: string, body?: unknown): Promise<Json> => {
    const isForm = body instanceof FormData
    const response = await fetch(`${managerUrl}${path}`, {
      method,
      headers: { authorization, ...(body === undefined || isForm ? {} : { 'content-type': 'application/json' }) },
      ...(body === undefined ? {} : { body: isForm ? body : JSON.stringify(body) }),
      signal: AbortSignal.timeout(60_000),
    })
    const text = await response.text()
    if (!response.ok) throw new Error(`${method} ${path} answered ${response.status}: ${text}`)
    return text === '' ? {} : (JSON.parse(text) as Json)
  }
  const newDomain = async () => {
    const alias = `d${randomBytes(6).toString('hex')}`
    return String((await call('POST', '/domains', { name: alias, alias }))['id'])
  }
  const domain = await newDomain()

  async function newUser() {
    const username = `u${randomBytes(6).toString('hex')}`
    const email = `${username}@example.com`
    const user = await call('POST', '/users', {
      first_name: username,
      last_name: 'Tester',
      email,
      credentials: { username, secret: PASSWORD },
    })
    const tokens = await call('POST', '/users/tokens/issue', { identity: username, secret: PASSWORD })
    return {
      id: String(user['id']),
      email,
      username,
      token: String(tokens['access_token']),
      refresh: String(tokens['refresh_token']),
    }
  }

  async function newMember(): Promise<string> {
    const { id } = await newUser()
    await call('POST', `/domains/${domain}/users/assign`, { relation: 'viewer', user_ids: [id] })
    return id
  }

  async function newTask(): Promise<string> {
    const task = await manager('POST', '/tasks', { name: 'add', inputs: [1, 2], domain_id: domain })
    const form = new FormData()
    form.append('file', new Blob([readFileSync(MODULE)]), 'add.wasm')
    await manager('PUT', `/tasks/${String(task['id'])}/upload`, form)
    return String(task['id'])
  }

  const bulk = async (what: 'clients' | 'channels' | 'groups') =>
    await call('POST', `/${domain}/${what}`, { name: `${what.slice(0, -1)} of a test` })

  /** The entity whose role is meant: the one that the command names too. */
  async function newRole(before: ReadonlyMap<string, string>): Promise<string> {
    const kinds = ['client', 'channel', 'group', 'domain']
    const kind = kinds.find((one) => before.has(`${one}_id`)) ?? 'domain'
    const id = before.get(`${kind}_id`) ?? domain
    const base = kind === 'domain' ? `/domains/${id}` : `/${domain}/${kind}s/${id}`
    const role = await call('POST', `${base}/roles`, {
      role_name: `role ${randomBytes(4).toString('hex')}`,
      optional_actions: ['read', 'delete'],
    })
    return String(role['id'])
  }

  /** A group with a client. */
  async function newFilledGroup(): Promise<string> {
    const group = String((await bulk('groups'))['id'])
    await call('POST', `/${domain}/clients`, { name: 'client of a test', parent_group_id: group })
    return group
  }

  /** A command to many clients, which has not ended. */
  async function newBulk(): Promise<string> {
    const made = await call('POST', `/${domain}/clients/commands`, { name: 'reboot', group: await newFilledGroup() })
    return String(made['id'])
  }

  const newReference = () => `${registryHost}/${domain}/add:${randomBytes(6).toString('hex')}`

  /** A module like no other, in the registry: one more custom section does no harm. */
  async function pushModule(): Promise<string> {
    const section = Buffer.from([0, 18, 1, 0x78, ...randomBytes(16)])
    const reference = newReference()
    const response = await fetch(
      `${managerUrl}/modules?reference=${encodeURIComponent(reference)}&domain_id=${domain}`,
      {
        method: 'PUT',
        headers: { authorization, 'content-type': 'application/wasm' },
        body: Buffer.concat([readFileSync(MODULE), section]),
      },
    )
    if (!response.ok) throw new Error(`pushing ${reference} answered ${response.status}: ${await response.text()}`)
    return reference
  }

  async function newCertificate(): Promise<Json> {
    const client = await bulk('clients')
    return await call('POST', `/${domain}/certs`, { client_id: client['id'], ttl: '1h' })
  }

  return {
    domain,
    token,
    call,
    manager,
    newUser,
    newDomain,
    newFilledGroup,
    newReference,
    async finish(taskId) {
      await manager('POST', `/tasks/${taskId}/start`)
      await until(
        async () => Number((await manager('GET', `/tasks/${taskId}/results`))['state']) === 3,
        'the end of a task',
      )
    },
    async newWorker() {
      const name = `worker-${randomBytes(6).toString('hex')}`
      const folder = mkdtempSync(join(tmpdir(), 'skein-worker-'))
      const process_ = spawn(process.execPath, ['programs/worker.ts'], {
        cwd: ROOT,
        stdio: 'ignore',
        env: {
          ...COMPILE_CACHE,
          ...installation.environment,
          PATH: process.env['PATH'] ?? '',
          SKEIN_WORKER_DATA_DIR: folder,
          SKEIN_WORKER_NAME: name,
          SKEIN_WORKER_MANAGER: `127.0.0.1:${installation.environment['SKEIN_MANAGER_GRPC_PORT']}`,
          SKEIN_WORKER_TOKEN: readFileSync(join(dataDir, 'worker-token'), 'utf8').trim(),
        },
      })
      workers.push({ process: process_, folder })
      const found = await until(
        async () => ((await manager('GET', '/workers'))['workers'] as Json[]).find((one) => one['name'] === name),
        'the new worker',
        60_000,
      )
      return String(found['id'])
    },
    async [Symbol.asyncDispose]() {
      for (const worker of workers) {
        worker.process.kill('SIGKILL')
        if (worker.process.exitCode === null && worker.process.signalCode === null)
          await new Promise((resolve) => worker.process.once('exit', resolve))
        rmSync(worker.folder, { recursive: true, force: true, maxRetries: 5 })
      }
    },
    async value(placeholder, before) {
      switch (placeholder) {
        case 'domain_id':
          return await newDomain()
        case 'user_id':
          return await newMember()
        case 'client_id':
          return String((await bulk('clients'))['id'])
        case 'client_secret': {
          const client = await bulk('clients')
          const credentials = client['credentials'] as Json
          const channel = before.get('channel_id')
          if (channel !== undefined)
            await call('POST', `/${domain}/channels/connect`, {
              client_ids: [client['id']],
              channel_ids: [channel],
              types: ['publish', 'subscribe'],
            })
          return String(credentials['secret'])
        }
        case 'channel_id':
          return String((await bulk('channels'))['id'])
        case 'group_id':
        case 'child_id':
        case 'parent_id':
          return String((await bulk('groups'))['id'])
        case 'role_id':
          return await newRole(before)
        case 'serial':
          return String((await newCertificate())['serial_number'])
        case 'task_id':
          return await newTask()
        case 'run_id':
          return String((await manager('POST', `/tasks/${before.get('task_id')}/invoke`, { inputs: [1, 2] }))['run_id'])
        case 'worker_id':
          // One that has been there for a while: its signs of life are all shown.
          return await until(
            async () => {
              const [worker] = (await manager('GET', '/workers'))['workers'] as Json[]
              const beats = worker?.['alive_history'] as unknown[] | undefined
              return beats?.length === SHOWN_BEATS && String(worker?.['id'])
            },
            'ten signs of life of a worker',
            60_000,
          )
        case 'key_id':
          return String((await call('POST', '/keys', { type: 3 }))['id'])
        case 'pat_id':
          return String((await call('POST', '/pats', { name: `pat ${randomUUID()}`, duration: '1h' }))['id'])
        case 'scope_id': {
          const path = `/pats/${before.get('pat_id')}/scope`
          const scope = { domain_id: domain, entity_type: 'clients', entity_id: '*', operation: 'read' }
          await call('PATCH', `${path}/add`, { scopes: [scope] })
          return String(((await call('GET', path))['scopes'] as Json[])[0]?.['id'])
        }
        case 'reference':
          return await pushModule()
        case 'digest': {
          const pulled = await manager('POST', '/modules', { reference: await pushModule(), domain_id: domain })
          return String(pulled['digest'])
        }
        case 'workflow_id':
          return String(
            (await manager('POST', '/workflows', { name: 'one', domain_id: domain, tasks: [{ name: 'add' }] }))['id'],
          )
        case 'subscription_id': {
          const topic = await bulk('channels')
          await call('POST', '/subscriptions', { topic: topic['id'], contact: `ops-${randomUUID()}@example.com` })
          const found = (await call('GET', `/subscriptions?topic=${String(topic['id'])}`))['subscriptions'] as Json[]
          return String(found[0]?.['id'])
        }
        case 'consumer': {
          const channel = String((await bulk('channels'))['id'])
          await call('POST', `/http/m/${domain}/c/${channel}`, [{ n: 'voltage', u: 'V', v: 120.1 }])
          const name = `consumer-${randomBytes(6).toString('hex')}`
          const made = { name, channels: [channel], from: 'earliest' }
          return String((await call('POST', `/${domain}/consumers`, made))['name'])
        }
        case 'bulk_id':
          return await newBulk()
        case 'command_id': {
          const path = `/${domain}/clients/${before.get('client_id')}/commands`
          return String((await call('POST', path, { name: 'reboot' }))['id'])
        }
        case 'rule_id': {
          const channel = String((await bulk('channels'))['id'])
          const source = { type: 'messages', channels: [channel] }
          const made = { name: `rule-${randomBytes(6).toString('hex')}`, source, condition: 'value > 30.0' }
          return String((await call('POST', `/${domain}/rules`, made))['id'])
        }
        case 'alarm_id': {
          const channel = String((await bulk('channels'))['id'])
          const source = { type: 'messages', channels: [channel] }
          const made = { name: `rule-${randomBytes(6).toString('hex')}`, source, condition: 'value > 30.0' }
          const rule = String((await call('POST', `/${domain}/rules`, made))['id'])
          await call('POST', `/http/m/${domain}/c/${channel}`, [{ n: 'voltage', u: 'V', v: 120.1 }])
          return await until(async () => {
            const { alarms } = await call('GET', `/${domain}/alarms?rule=${rule}`)
            const id = (alarms as Json[])[0]?.['id']
            return typeof id === 'string' ? id : undefined
          }, 'the alarm was raised')
        }
        case 'window_id': {
          const plan = { schedule: '0 3 * * 0', duration: '1h', starts_at: '2999-01-01T00:00:00Z' }
          const made = { name: `window-${randomBytes(6).toString('hex')}`, ...plan }
          return String((await call('POST', `/${domain}/maintenance-windows`, made))['id'])
        }
        case 'position': {
          const path = `/${domain}/consumers/${before.get('consumer')}/messages?wait=30s`
          return String(((await call('GET', path))['messages'] as Json[])[0]?.['position'])
        }
        default:
          throw new Error(`the world knows no ${placeholder}`)
      }
    },
    async mailToken(email) {
      const folder = join(dataDir, 'mail')
      const mails = await until(() => {
        const found = existsSync(folder) ? readdirSync(folder).toSorted() : []
        const texts = found
          // One that is being written has another name, and not for long.
          .filter((name) => name.endsWith('.eml'))
          .map((name) => readFileSync(join(folder, name), 'utf8'))
          .filter((text) => text.includes(email))
        return texts.length > 0 ? texts : undefined
      }, `a mail to ${email}`)
      const found = /token=(?:3D)?([\w.=\r\n-]+?)(?:[\s"<&]|$)/.exec((mails.at(-1) ?? '').replaceAll('=\r\n', ''))
      if (found?.[1] === undefined) throw new Error(`no mail to ${email} holds a token: ${mails.at(-1) ?? 'no mail'}`)
      return found[1]
    },
  }
}
