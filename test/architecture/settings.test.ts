/** Every variable that is named exists, every program says the ones it reads, and the decided defaults hold. */
import { execFile } from 'node:child_process'
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'
import { variablesOf } from '#core/config/index.ts'
import { VARIABLES as COMMAND_LINE_VARIABLES } from '../../cli/man-page.ts'
import { PROGRAM_SETTINGS, settingRows } from '../../tools/generate/settings-table.ts'
import { FOLDERS } from './rooms.ts'
import { ROOT, productSources } from './source-imports.ts'

const rows = settingRows()
const byName = new Map(rows.map(({ setting }) => [setting.name, setting]))
/** Of the programs, and of the command line, which says its own in its manual. */
const known = new Set([
  ...rows.flatMap(({ setting }) => variablesOf(setting)),
  ...COMMAND_LINE_VARIABLES.map(([name]) => name),
])

/** Contract section 15, for what this version serves: the value of an empty environment. */
const DECIDED_DEFAULTS: Readonly<Record<string, unknown>> = {
  SKEIN_DATA_DIR: './data',
  SKEIN_HOST: '127.0.0.1',
  SKEIN_HTTP_PORT: 8080,
  SKEIN_SERVICE_PORTS: true,
  SKEIN_COAP_PORT: 5683,
  SKEIN_MQTT_PORT: 1883,
  SKEIN_MQTTS_PORT: 8883,
  SKEIN_MQTT_PROFILE: 'product',
  SKEIN_MANAGER_HTTP_PORT: 7070,
  SKEIN_MANAGER_GRPC_PORT: 7071,
  SKEIN_PROXY_PORT: 7072,
  SKEIN_SECRET_KEY: undefined,
  SKEIN_TLS_CERT: undefined,
  SKEIN_TLS_KEY: undefined,
  SKEIN_TLS_CA: undefined,
  SKEIN_GRPC_TLS_CERT: undefined,
  SKEIN_GRPC_TLS_KEY: undefined,
  SKEIN_GRPC_INSECURE: false,
  SKEIN_CORS_ORIGINS: [],
  SKEIN_TRUST_PROXY: [],
  SKEIN_MAX_BODY_BYTES: 1024 * 1024,
  SKEIN_LOG_LEVEL: 'info',
  SKEIN_ALLOW_SELF_REGISTER: true,
  SKEIN_USERS_UNIQUE_NAMES: true,
  SKEIN_REQUIRE_VERIFIED_EMAIL: false,
  SKEIN_SMTP_URL: undefined,
  SKEIN_MAIL_FROM: undefined,
  SKEIN_PUBLIC_URL: 'http://127.0.0.1:8080',
  SKEIN_PROVISION_USER: undefined,
  SKEIN_PROVISION_PASSWORD: undefined,
  SKEIN_PROVISION_API_KEY: undefined,
  SKEIN_PROVISION_LAYOUT: undefined,
  SKEIN_BOOTSTRAP_ENCRYPT_KEY: undefined,
  SKEIN_WORKER_MANAGER: ['127.0.0.1:7071'],
  // The host name and the number of cores are found where they are used.
  SKEIN_WORKER_NAME: undefined,
  SKEIN_WORKER_SLOTS: undefined,
  SKEIN_WORKER_LABELS: {},
  SKEIN_WORKER_TOKEN: undefined,
  SKEIN_PROXY_ADDRESS: '127.0.0.1:7072',
  SKEIN_PROXY_HTTP_HOSTS: [],
  SKEIN_DATABASE_UNSAFE: false,
  SKEIN_DATABASE_URL: undefined,
  SKEIN_DATABASE_HA: false,
  SKEIN_DATABASE_REPLICA_URL: undefined,
  SKEIN_REDIS_URL: undefined,
  SKEIN_ADMIN_EMAIL: 'admin@example.com',
  SKEIN_ADMIN_USERNAME: 'admin',
  SKEIN_ADMIN_SECRET: undefined,
  SKEIN_ACCESS_TOKEN_TTL: 3_600_000,
  SKEIN_REFRESH_TOKEN_TTL: 86_400_000,
  SKEIN_MANAGER_AUTH: 'auto',
  PROXY_REGISTRY_URL: undefined,
  PROXY_AUTHENTICATE: false,
  SKEIN_SECRET_KEY_PREVIOUS: undefined,
  PROXY_REGISTRY_USERNAME: undefined,
  PROXY_REGISTRY_PASSWORD: undefined,
}

const VARIABLE = /\b(?:SKEIN|PROXY|OTEL)_[A-Z0-9]+(?:_[A-Z0-9]+)*(_?)/g

/** Names of variables in a text; `SKEIN_HTTP_` with its bar at the end is a prefix and none. */
function variablesIn(text: string): string[] {
  // SKEIN_TEST_… are read by the test harness alone (docs/guides/testing.md).
  return [...text.matchAll(VARIABLE)]
    .filter((match) => match[1] === '' && !match[0].startsWith('SKEIN_TEST_'))
    .map((match) => match[0])
}

/** The upper-case constants of the code that look like variables and are none. */
function constantsOf(text: string): Set<string> {
  return new Set(
    [...text.matchAll(/\b(?:const|export const) ((?:SKEIN|PROXY|OTEL)_[A-Z0-9_]+)\b/g)].map((match) => match[1] ?? ''),
  )
}

const sources = productSources()
const constants = new Set(sources.flatMap(({ text }) => [...constantsOf(text)]))

describe('settings', () => {
  it('every variable that the code names is a setting', () => {
    const seen = sources.flatMap(({ path, text }) => variablesIn(text).map((name) => ({ path, name })))
    expect(seen.length).toBeGreaterThan(50)
    const unknown = seen.filter(({ name }) => !known.has(name) && !constants.has(name))
    expect(unknown.map(({ path, name }) => `${path} names ${name}`)).toEqual([])
  })

  it('every variable that a document names is a setting', () => {
    const files = globSync(['*.md', 'docs/**/*.md', `{${FOLDERS.join(',')},examples}/**/*.md`], { cwd: ROOT })
    expect(files).toContain('docs/settings.md')
    const unknown = files.flatMap((path) =>
      variablesIn(readFileSync(join(ROOT, path), 'utf8'))
        .filter((name) => !known.has(name) && !constants.has(name))
        .map((name) => `${path} names ${name}`),
    )
    expect(unknown).toEqual([])
  })

  it.each(Object.keys(PROGRAM_SETTINGS))(
    'npm run %s -- --help names exactly what docs/settings.md says it reads',
    async (program) => {
      const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
        scripts: Record<string, string>
      }
      const command = /programs\/[a-z]+\.ts(?: [a-z]+)?$/.exec(scripts[program] ?? '')?.[0] ?? ''
      const { stdout } = await promisify(execFile)(process.execPath, [...command.split(' '), '--help'], {
        cwd: ROOT,
        timeout: 120_000,
      })
      const shown = [...stdout.matchAll(/^ {2}((?:SKEIN|PROXY|OTEL)_[A-Z0-9_]+) /gm)].map((match) => match[1] ?? '')
      const documented = rows.filter(({ programs }) => programs.includes(program)).map(({ setting }) => setting.name)
      expect(shown.toSorted()).toEqual(documented.toSorted())
    },
  )

  it.each(Object.entries(DECIDED_DEFAULTS))('%s has its decided default', (name, value) => {
    const setting = byName.get(name)
    expect(setting, `${name} is no setting`).toBeDefined()
    expect(setting?.fallback).toEqual(value)
  })

  it('a password has 8 or more characters unless SKEIN_PASSWORD_PATTERN says something else', () => {
    const pattern = new RegExp(String(byName.get('SKEIN_PASSWORD_PATTERN')?.fallback))
    expect(pattern.test('1234567')).toBe(false)
    expect(pattern.test('12345678')).toBe(true)
  })

  it('every credential is a secret', () => {
    const looksSecret =
      /_(SECRET|PASSWORD|TOKEN|SECRET_KEY|API_KEY|ENCRYPT_KEY|DATABASE_URL|REDIS_URL|SMTP_URL|REGISTRY_URL)$/
    const open = rows.filter(({ setting }) => looksSecret.test(setting.name) && !setting.isSecret)
    expect(open.map(({ setting }) => setting.name)).toEqual([])
  })

  it('each has a meaning and one default in every program', () => {
    for (const { setting, meanings } of rows) {
      for (const meaning of meanings) expect(meaning.length, setting.name).toBeGreaterThan(10)
      expect(setting.name).toMatch(/^(SKEIN|PROXY|OTEL)_[A-Z0-9_]+$/)
    }
  })
})
