/**
 * Every command once, as its example in the help says, through a pipe and on a terminal, against the running platform
 * (specification, Command-line client; contract section 13). The output is compared with `snapshots/`, without ids and times.
 */
import { execFileSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { GROUPS } from '#cli/groups.ts'
import type { Command } from '#cli/shared/command.ts'
import { completeDocument } from '#http/index.ts'
import type { Document } from '#http/index.ts'
import { createInstallation, startWhole } from '../harness/whole.ts'
import type { Installation, Whole } from '../harness/whole.ts'
import { createHome } from './skein.ts'
import type { Ended, Home, RunOptions } from './skein.ts'
import { startRegistry } from './registry.ts'
import type { Registry } from './registry.ts'
import { shapeOf } from './shape.ts'
import { ADMIN_SECRET, PATIENT_WORKER, createWorld } from './world.ts'
import type { World } from './world.ts'

let registry: Registry
/** The whole platform starts, on a machine that others use too. */
const START_DEADLINE_MS = 180_000

let installation: Installation
let whole: Whole
let world: World
let home: Home
/** Paths that the platform serves, with `{}` for each parameter. */
let served: Set<string>

beforeAll(async () => {
  registry = await startRegistry()
  installation = await createInstallation({
    ...PATIENT_WORKER,
    SKEIN_WORKER_SLOTS: '4',
    SKEIN_BOOTSTRAP_ENCRYPT_KEY: CRYPTO_KEY,
    PROXY_REGISTRY_URL: `http://${registry.host}`,
  })
  whole = await startWhole(installation)
  const managerUrl = `http://127.0.0.1:${installation.environment['SKEIN_MANAGER_HTTP_PORT']}`
  home = createHome({ SKEIN_URL: installation.base, SKEIN_MANAGER_URL: managerUrl })
  world = await createWorld(whole, managerUrl, installation, registry.host)
  const login = await home.run(['login', 'admin', '--password-stdin'], { input: `${ADMIN_SECRET}\n` })
  expect(login).toMatchObject({ code: 0, stdout: 'ok\n' })
  expect((await home.run(['context', 'domain', world.domain])).code).toBe(0)
  writeFileSync(
    join(home.folder, 'workflow.json'),
    JSON.stringify({ name: 'two', tasks: [{ name: 'add' }, { name: 'again', depends_on: ['add'] }] }),
  )
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', 'pump.key']
  execFileSync('openssl', ['req', '-new', ...key, '-subj', '/CN=pump', '-out', SIGNING_REQUEST], {
    cwd: home.folder,
    stdio: 'ignore',
  })
  const document = completeDocument((await whole.call('GET', '/openapi.json')).json<Document>()) as {
    paths: Record<string, Record<string, unknown>>
  }
  served = new Set(
    Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path.replaceAll(/\{[^}]+\}/g, '{}')}`),
    ),
  )
}, START_DEADLINE_MS)

afterAll(async () => {
  home?.[Symbol.dispose]()
  await world?.[Symbol.asyncDispose]()
  await whole?.[Symbol.asyncDispose]()
  installation?.[Symbol.dispose]()
  await registry?.[Symbol.asyncDispose]()
})

const CRYPTO_KEY = '0123456789abcdef0123456789abcdef'

/** Commands of the program itself; they have tests of their own in this folder. */
const ELSEWHERE = new Set(['login', 'logout', 'context', 'up', 'doctor', 'config', 'token', 'completion', 'provision'])

/** What an example needs that its placeholders do not say: arguments in its place, or something made before. */
type Special = {
  args?: (world: World) => Promise<string[]> | string[]
  prepare?: (world: World, values: ReadonlyMap<string, string>) => Promise<unknown>
  options?: (world: World, values: ReadonlyMap<string, string>) => RunOptions
  /** Values of placeholders that are not the usual ones. */
  values?: (world: World) => Promise<Record<string, string>> | Record<string, string>
}

/** Commands of other command lines: `test/compatibility/data/command-lines.json` runs them, and compares their requests. */
const OF_OTHER_COMMAND_LINES: ReadonlySet<string> = new Set([
  'domains unassign users <relation> <JSON_user_ids> <domain_id>',
  'clients not-connected <client_id>',
  'channels not-connected <channel_id>',
  'profiles update <JSON_profile>',
  'profiles refresh <client_id>',
  'certs issue named <client_id> <common_name> <JSON_addresses> [<options>]',
  'certs get entity <entity_id>',
  'certs entity-id <serial>',
  'certs delete <client_id>',
  'certs csr <JSON_names> <private_key>',
  'certs issue-csr <client_id> <ttl> <csr>',
  'certs ocsp <serial|certificate>',
  'certs download-ca [<file>]',
])

/** A window is not on while its output is compared. */
const LATER = { starts_at: '2999-01-01T00:00:00Z' }

const unique = () => randomBytes(6).toString('hex')
/** A file with a rule of its own: both forms of a command run beside each other. */
function newRulesFile(): string {
  const name = `plant${unique()}`
  const rule = `{ name: ${name}, source: { type: messages }, condition: value > 30.0, for: 2m }`
  writeFileSync(join(home.folder, `${name}.yaml`), `rules: [${rule}]\n`)
  return `${name}.yaml`
}
/** As long as a new one has to be. */
const newExternalKey = () => randomBytes(8).toString('hex')

const ASSIGNED: Special = {
  prepare: (w, values) =>
    w.call('POST', `/domains/${values.get('domain_id')}/users/assign`, {
      relation: 'viewer',
      user_ids: [values.get('user_id')],
    }),
}

const SPECIAL: Readonly<Record<string, Special>> = {
  // A domain of its own: its only change is its creation.
  overview: { args: async (w) => [await w.newDomain()] },
  // No run is ever in this state: what other commands ran does not show.
  'runs list': { args: () => ['--state', 'skipped'] },
  'users create <first_name> <last_name> <email> <username> <password>': {
    args: () => ['Ada', 'Lovelace', `${unique()}@example.com`, `ada${unique()}`, '12345678'],
  },
  'users create <name> <identity> <password>': { args: () => ['Ada', `${unique()}@example.com`, '12345678'] },
  'users create <JSON_user>': {
    args: () => [
      JSON.stringify({
        first_name: 'Ada',
        last_name: 'Lovelace',
        email: `${unique()}@example.com`,
        credentials: { username: `ada${unique()}`, secret: '12345678' },
      }),
    ],
  },
  'alarms maintenance create <JSON_window>': {
    args: () => [JSON.stringify({ name: `Sundays ${unique()}`, schedule: '0 2 * * 0', duration: '2h', ...LATER })],
  },
  'consumers create <JSON_consumer>': {
    args: async (w) => [
      JSON.stringify({ name: `readings-${unique()}`, channels: [await w.value('channel_id', new Map())] }),
    ],
  },
  'rules create <JSON_rule>': {
    args: async (w) => [
      JSON.stringify({
        name: `too hot ${unique()}`,
        source: { type: 'messages', channels: [await w.value('channel_id', new Map())] },
        condition: 'value > 30.0',
      }),
    ],
  },
  'rules import <file>': { args: () => [newRulesFile()] },
  'users token <username> <password> [<domain_id>]': { args: () => ['admin', ADMIN_SECRET] },
  'users refreshtoken <refresh_token> [<domain_id>]': { args: async (w) => [(await w.newUser()).refresh] },
  'users revoketoken <refresh_token>': { args: async (w) => [(await w.newUser()).refresh] },
  'users update username <user_id> <username>': {
    args: async (w) => [await w.value('user_id', new Map()), `ada${unique()}`],
  },
  'users update email <user_id> <email>': {
    args: async (w) => [await w.value('user_id', new Map()), `${unique()}@example.com`],
  },
  'users update identity <user_id> <identity>': {
    args: async (w) => [await w.value('user_id', new Map()), `${unique()}@example.com`],
  },
  'users password <old_password> <new_password>': {
    args: async (w) => ['12345678', 'a-longer-one', (await w.newUser()).token],
  },
  'users resetpassword <password> <confirm_password> <reset_token>': {
    args: async (w) => {
      const { email } = await w.newUser()
      await w.call('POST', '/password/reset-request', { email })
      return ['a-new-one', 'a-new-one', await w.mailToken(email)]
    },
  },
  'users sendverification': { args: async (w) => [(await w.newUser()).token] },
  'users verifyemail <verification_token>': {
    args: async (w) => {
      const user = await w.newUser()
      await whole.call('POST', '/users/send-verification', { authorization: `Bearer ${user.token}` })
      return [await w.mailToken(user.email)]
    },
  },
  'users sessions end <session_id>': {
    args: async (w) => {
      const { token } = await w.newUser()
      const answer = await whole.call('GET', '/users/tokens/refresh-tokens', { authorization: `Bearer ${token}` })
      const sessions = Object.values(answer.json<Record<string, unknown>>()).find(Array.isArray) as { id: string }[]
      return [sessions[0]?.id ?? '', token]
    },
  },
  'users sessions': { args: async (w) => [(await w.newUser()).token] },
  'domains create <name> <alias>': { args: () => ['Plant', `plant${unique()}`] },
  'domains unassign users <user_id> <domain_id>': ASSIGNED,
  'domains unassign user <user_id> <domain_id>': ASSIGNED,
  'clients update secret <client_id> <secret>': {
    args: async (w) => [await w.value('client_id', new Map()), `secret-${unique()}`],
  },
  'clients commands many <JSON_command>': { values: async (w) => ({ group_id: await w.newFilledGroup() }) },
  'invitations get <user_id> <domain_id>': { prepare: invite },
  'invitations delete <user_id> <domain_id>': { prepare: invite },
  'invitations accept <domain_id>': { args: invited },
  'invitations reject <domain_id>': { args: invited },
  'messages tail <channel_id.subtopic>': { options: whileSending },
  'bootstrap create <JSON_config>': {
    args: async (w) => [JSON.stringify(await newConfig(w))],
  },
  'bootstrap get <client_id>': { values: configured },
  'bootstrap remove <client_id>': { values: configured },
  'bootstrap enable <client_id>': { values: configured },
  'bootstrap disable <client_id>': { values: configured },
  'bootstrap update config <JSON_config>': { values: configured },
  'bootstrap update connection <client_id> <channel_ids>': { values: configured },
  'bootstrap update certs <client_id> <client_cert> <client_key> <ca_cert>': {
    args: async (w) => [(await configured(w))['client_id'], `@${SIGNING_REQUEST}`, `@${SIGNING_REQUEST}`, '@pump.key'],
  },
  'bootstrap whitelist <JSON_config>': { values: configured },
  'bootstrap bootstrap secure <external_id> <external_key> <crypto_key>': {
    args: async (w) => [...(await deviceOf(w)), CRYPTO_KEY],
  },
  'bootstrap bootstrap <external_id> <external_key>': { args: deviceOf },
  'profiles get <profile_id>': { values: profiled },
  'profiles update <profile_id> <JSON_profile>': { values: profiled },
  'profiles remove <profile_id>': { values: async (w) => ({ profile_id: await newProfile(w) }) },
  'profiles preview <profile_id> <JSON_sample>': { values: profiled },
  'profiles assign <profile_id> <client_id>': { values: profiled },
  'profiles bind <client_id> <JSON_bindings>': { values: profiled },
  'profiles bindings <client_id>': { values: profiled },
  'modules try <file>': { args: () => [MODULE, '--inputs', '1,2'] },
  'modules inspect <file>': { args: () => [MODULE] },
  'modules download <digest> <file>': {
    args: async (w) => [await w.value('digest', new Map()), 'downloaded.wasm'],
  },
  'modules push <file> <reference>': { args: (w) => [MODULE, w.newReference()] },
  'workers revoke <worker_id>': { values: async (w) => ({ worker_id: await w.newWorker() }) },
  'workers delete <worker_id>': { values: async (w) => ({ worker_id: await w.newWorker() }) },
  'events tail': {
    options: (w) => whileDoing(() => w.value('client_id', new Map())),
  },
  'events tasks': { options: (w) => whileDoing(() => w.value('task_id', new Map())) },
  'workers top': { options: () => ({ interruptWhen: (stdout) => stdout.includes('alive') }) },
  'tasks state get <task_id> <key>': {
    prepare: (_w, values) =>
      home.run(['tasks', 'state', 'set', values.get('task_id') ?? '', values.get('key') ?? 'count', '42']),
  },
  'tasks logs <task_id>': { prepare: (w, values) => w.finish(values.get('task_id') ?? '') },
  'tasks run <file|image>': { args: () => [MODULE, '--inputs', '1,2', '--wait'] },
  'tasks upload <task_id> <file>': { args: async (w) => [await w.value('task_id', new Map()), MODULE] },
  'tasks results <task_id>': { prepare: (w, values) => w.value('run_id', values) },
  'groups children remove <group_ids> <group_id>': {
    prepare: (w, values) =>
      w.call('POST', `/${w.domain}/groups/${values.get('group_id')}/children`, {
        children_ids: [values.get('child_id')],
      }),
  },
  'channels unassign groups <group_ids> <channel_id>': { prepare: adopt },
  'channels unassign group <group_ids> <channel_id>': { prepare: adopt },
  'certs sign <client_id> <csr>': { args: async (w) => [await w.value('client_id', new Map()), `@${SIGNING_REQUEST}`] },
  'certs revoke <client_id>': {
    prepare: (w, values) => w.call('POST', `/${w.domain}/certs`, { client_id: values.get('client_id'), ttl: '1h' }),
  },
}

const MODULE = join(import.meta.dirname, '..', '..', 'examples', 'add', 'add.wasm')

/** Made by openssl before the tests, in the folder in which `skein` runs. */
const SIGNING_REQUEST = 'pump.csr'

async function newConfig(w: World) {
  return {
    external_id: unique(),
    external_key: newExternalKey(),
    name: 'gateway',
    channels: [await w.value('channel_id', new Map())],
    content: '{}',
  }
}

async function deviceOf(w: World): Promise<[string, string]> {
  const config = await newConfig(w)
  await w.call('POST', `/${w.domain}/clients/configs`, config)
  return [config.external_id, config.external_key]
}

async function configured(w: World): Promise<{ client_id: string }> {
  const [externalId] = await deviceOf(w)
  const found = await w.call('GET', `/${w.domain}/clients/configs?external_id=${externalId}`)
  return { client_id: String((found['configs'] as { client_id: string }[])[0]?.client_id) }
}

async function newProfile(w: World): Promise<string> {
  const slots = [{ name: 'device', type: 'client' }]
  const body = { name: 'gateway', content_template: 'id={{.Device.ID}}', binding_slots: slots }
  return String((await w.call('POST', `/${w.domain}/clients/bootstrap/profiles`, body))['id'])
}

/** A configuration with a profile, and its client bound to the slot. */
async function profiled(w: World): Promise<{ profile_id: string; client_id: string }> {
  const profile_id = await newProfile(w)
  const external_id = unique()
  await w.call('POST', `/${w.domain}/clients/configs`, {
    external_id,
    external_key: newExternalKey(),
    name: 'gateway',
    profile_id,
    bindings: [{ slot: 'device', type: 'client' }],
  })
  const found = await w.call('GET', `/${w.domain}/clients/configs?external_id=${external_id}`)
  return { profile_id, client_id: String((found['configs'] as { client_id: string }[])[0]?.client_id) }
}

async function invite(w: World, values: ReadonlyMap<string, string>): Promise<unknown> {
  return await w.call('POST', '/invitations', {
    user_id: values.get('user_id'),
    domain_id: values.get('domain_id'),
    relation: 'viewer',
  })
}

async function invited(w: World): Promise<string[]> {
  const user = await w.newUser()
  const domain = await w.newDomain()
  await invite(
    w,
    new Map([
      ['user_id', user.id],
      ['domain_id', domain],
    ]),
  )
  return [domain, user.token]
}

async function adopt(w: World, values: ReadonlyMap<string, string>): Promise<unknown> {
  return await w.call('POST', `/${w.domain}/channels/${values.get('channel_id')}/groups/assign`, {
    group_ids: [values.get('group_id')],
  })
}

/** Does something again and again until it is seen in the stream. */
function whileDoing(act: () => Promise<unknown>): RunOptions {
  let isSeen = false
  const again = async (): Promise<void> => {
    if (isSeen) return
    await act()
    await new Promise((resolve) => setTimeout(resolve, 100))
    await again()
  }
  void again().catch(() => undefined)
  return {
    interruptWhen(stdout) {
      isSeen = stdout.includes('\n')
      return isSeen
    },
  }
}

function whileSending(w: World, values: ReadonlyMap<string, string>): RunOptions {
  // With its time: a follower who comes late is given what is stored, which has one in any case.
  const pack = [{ n: 't', t: 1_700_000_000, u: 'Cel', v: 1 }]
  return whileDoing(() => w.call('POST', `/m/${w.domain}/c/${values.get('channel_id')}`, pack))
}

const keyOf = (group: string, { words, args }: Command) => [group, words, args].filter((part) => part !== '').join(' ')

/** Words of a shell line with quotes; no variables. */
function shellWords(line: string): string[] {
  return [...line.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? '')
}

/** Arguments of the example, with a fresh value for each placeholder. Roles come last: they belong to an entity. */
async function fill(command: Command, special: Special): Promise<{ args: string[]; values: Map<string, string> }> {
  const values = new Map(Object.entries((await special.values?.(world)) ?? {}))
  if (special.args !== undefined) return { args: await special.args(world), values }
  const names = [...new Set([...command.example.matchAll(/<([a-z_]+)>/g)].map(([, name]) => name ?? ''))]
  const rank = (name: string) => (['role_id', 'run_id', 'scope_id', 'client_secret'].includes(name) ? 1 : 0)
  for (const name of names.toSorted((one, other) => rank(one) - rank(other)))
    if (!values.has(name)) values.set(name, await world.value(name, values))
  const args = shellWords(command.example).map((word) =>
    word.replaceAll(/<([a-z_]+)>/g, (_match, name: string) => values.get(name) ?? ''),
  )
  return { args, values }
}

/** Whether the platform has the route; a row that is more than one request counts as served. */
function isServed(command: Command): boolean {
  if (command.call === undefined) return true
  const { path, method } = command.call
  if (typeof path === 'function') return true
  const known = (text: string) => served.has(`${method} ${text.replaceAll(/\{[^}]+\}/g, '{}')}`)
  return known(path) || known(path.replace(/^\/\{domain\}/, ''))
}

async function tryOut(groupName: string, command: Command, form: 'run' | 'runOnTerminal'): Promise<Ended> {
  const special = SPECIAL[keyOf(groupName, command)] ?? {}
  const { args, values } = await fill(command, special)
  await special.prepare?.(world, values)
  const words = command.words === '' ? [] : command.words.split(' ')
  return await home[form]([groupName, ...words, ...args], special.options?.(world, values))
}

describe('every command, as its example says', () => {
  for (const entry of GROUPS.filter(({ name }) => !ELSEWHERE.has(name)))
    it(`${entry.name}, in a pipe and on a terminal`, async () => {
      const { commands } = await entry.load()
      const parts: string[] = []
      for (const command of commands) {
        const key = keyOf(entry.name, command)
        if (OF_OTHER_COMMAND_LINES.has(key)) continue
        const [piped, shown] = await Promise.all([
          tryOut(entry.name, command, 'run'),
          tryOut(entry.name, command, 'runOnTerminal'),
        ])
        for (const { code, stdout, stderr } of [piped, shown])
          if (code !== 0) throw new Error(`skein ${key} ended with ${code}: ${stdout}${stderr}`)
        expect(piped.stdout, `${key} colours a pipe`).not.toContain('\u001B')
        // Of a stream, as much as came before the interruption.
        const isStream = SPECIAL[key]?.options !== undefined
        const onTerminal = isStream ? (shown.stdout.split('\n')[0] ?? '') : shown.stdout
        parts.push(`$ skein ${key}\n--- pipe\n${shapeOf(piped.stdout)}\n--- terminal\n${shapeOf(onTerminal)}`)
      }
      await expect(`${parts.join('\n\n')}\n`).toMatchFileSnapshot(`snapshots/${entry.name}.txt`)
    })

  it('names no command that the platform does not serve', async () => {
    const missing: string[] = []
    for (const entry of GROUPS)
      for (const command of (await entry.load()).commands)
        if (!isServed(command)) missing.push(keyOf(entry.name, command))
    expect(missing).toEqual([])
  })

  it('has no special case for a command that is gone', async () => {
    const keys = new Set<string>()
    for (const entry of GROUPS)
      for (const command of (await entry.load()).commands) keys.add(keyOf(entry.name, command))
    expect([...Object.keys(SPECIAL), ...OF_OTHER_COMMAND_LINES].filter((key) => !keys.has(key))).toEqual([])
  })
})
