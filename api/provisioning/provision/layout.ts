/**
 * The layout of /mapping: the clients and channels that a request creates, from the layout file (contract 9.2) and the
 * settings, which override it. It is read once at the start.
 */
import { readFile } from 'node:fs/promises'
import { parse } from 'smol-toml'
import { ServiceError } from '#core/errors/index.ts'
import { Secret } from '#core/config/index.ts'
import type { ConfigOf } from '#core/config/index.ts'
import { parseDurationMs } from '#core/time.ts'
import type { PROVISION_SETTINGS } from './config.ts'

export type LayoutItem = { name: string; metadata: Record<string, unknown> }

/** Login and password, or an API key. Undefined means that requests require Authorization. */
export type ServiceCredentials = { apiKey: Secret } | { identity: string; password: Secret } | undefined

export type Layout = {
  clients: readonly LayoutItem[]
  channels: readonly LayoutItem[]
  domainId: string | undefined
  credentials: ServiceCredentials
  hasBootstrap: boolean
  isWhitelisted: boolean
  hasCertificates: boolean
  certificateTtl: string
  /** Content of the bootstrap configurations. */
  content: Record<string, unknown>
}

/** Metadata key of the client that represents the device. */
export const EXTERNAL_ID = 'external_id'

const DEFAULT_CLIENTS: LayoutItem[] = [{ name: 'client', metadata: { [EXTERNAL_ID]: '' } }]
const DEFAULT_CHANNELS: LayoutItem[] = [
  { name: 'control-channel', metadata: { type: 'control' } },
  { name: 'data-channel', metadata: { type: 'data' } },
]
const DEFAULT_CERTIFICATE_TTL = '2400h'
const MAX_ITEMS = 100

type Table = Record<string, unknown>

/** Throws `malformed` with the file and the field, or the setting. */
export async function loadLayout(config: ConfigOf<typeof PROVISION_SETTINGS>): Promise<Layout> {
  const path = config.provisionLayout
  const file = path === undefined ? {} : await readLayout(path)
  const fault = (field: string, wanted: string) =>
    new ServiceError('malformed', `${field} of the layout ${path ?? ''} must be ${wanted}`)
  const table = (value: unknown, field: string): Table => {
    if (value === undefined) return {}
    if (typeof value !== 'object' || value === null || Array.isArray(value)) throw fault(field, 'a table')
    return value as Table
  }
  const server = table(file['server'], '[server]')
  const bootstrap = table(file['bootstrap'], '[bootstrap]')
  const cert = table(file['cert'], '[cert]')
  const text = (...names: string[]) => {
    const found = names.map((name) => server[name]).find((value) => value !== undefined && value !== '')
    if (found !== undefined && typeof found !== 'string') throw fault(`[server] ${names.join(' or ')}`, 'a text')
    return found
  }
  const flag = (setting: string, given: string | undefined, field: string, fallback: boolean) => {
    const value = given === undefined ? (bootstrap[field] ?? fallback) : asFlag(given)
    if (typeof value !== 'boolean')
      throw given === undefined
        ? fault(`[bootstrap] ${field}`, 'true or false')
        : new ServiceError('malformed', `${setting} must be true or false: got ${JSON.stringify(given)}`)
    return value
  }
  const items = (name: 'clients' | 'channels', older: string, fallback: LayoutItem[]) => {
    const list = file[name] ?? file[older]
    if (list === undefined) return fallback
    if (!Array.isArray(list) || list.length === 0 || list.length > MAX_ITEMS)
      throw fault(`[[${name}]]`, `a list of 1 to ${MAX_ITEMS} tables`)
    return list.map((one: unknown, index) => {
      const item = table(one, `[[${name}]]`)
      const { name: title = '', metadata } = item
      if (typeof title !== 'string') throw fault(`name of [[${name}]] ${index + 1}`, 'a text')
      return { name: title, metadata: table(metadata, `[${name}.metadata]`) }
    })
  }
  const clients = items('clients', 'things', DEFAULT_CLIENTS)
  if (clients.filter(isGateway).length > 1)
    throw fault('[[clients]]', 'a list in which at most one client has external_id in its metadata')
  const certificateTtl = config.provisionCertTtl ?? cert['ttl'] ?? DEFAULT_CERTIFICATE_TTL
  if (typeof certificateTtl !== 'string') throw fault('[cert] ttl', 'a duration such as 2400h')
  parseDurationMs(certificateTtl, 'SKEIN_PROVISION_CERTS_HOURS_VALID')
  return {
    clients,
    channels: items('channels', 'channel', DEFAULT_CHANNELS),
    domainId: config.provisionDomainId ?? text('domain_id'),
    credentials: credentialsOf(config, text),
    hasBootstrap: flag('SKEIN_PROVISION_BS_CONFIG_PROVISIONING', config.provisionBootstrap, 'provision', true),
    isWhitelisted: flag('SKEIN_PROVISION_BS_AUTO_WHITELIST', config.provisionWhitelist, 'autowhite_list', true),
    hasCertificates: flag('SKEIN_PROVISION_X509_PROVISIONING', config.provisionX509, 'x509_provision', false),
    certificateTtl,
    content:
      bootstrap['content'] === undefined
        ? contentOf(config.provisionContent)
        : plain(table(bootstrap['content'], '[bootstrap.content]')),
  }
}

export const isGateway = ({ metadata }: LayoutItem) => EXTERNAL_ID in metadata

function credentialsOf(
  config: ConfigOf<typeof PROVISION_SETTINGS>,
  text: (...names: string[]) => string | undefined,
): ServiceCredentials {
  const written = (...names: string[]) => {
    const value = text(...names)
    return value === undefined ? undefined : new Secret(value)
  }
  const apiKey = config.provisionApiKey ?? written('api_key', 'mg_api_key')
  if (apiKey !== undefined) return { apiKey }
  const identity = config.provisionUser ?? text('email', 'username', 'mg_user', 'user')
  const password = config.provisionPassword ?? written('pass', 'password', 'mg_pass')
  if ((identity === undefined) !== (password === undefined))
    throw new ServiceError('malformed', 'SKEIN_PROVISION_USER and SKEIN_PROVISION_PASSWORD must be set together')
  return identity === undefined || password === undefined ? undefined : { identity, password }
}

async function readLayout(path: string): Promise<Table> {
  const text = await readFile(path, 'utf8').catch((error: Error) => {
    throw new ServiceError('malformed', `failed to read the file of SKEIN_PROVISION_LAYOUT: ${error.message}`, {
      cause: error,
    })
  })
  try {
    return parse(text)
  } catch (error) {
    // The message of the parser quotes the line, which can contain a password.
    const { line, column } = error as { line?: number; column?: number }
    throw new ServiceError('malformed', `invalid TOML in ${path} at line ${line ?? '?'}, column ${column ?? '?'}`)
  }
}

const asFlag = (text: string) => ({ true: true, 1: true, false: false, 0: false })[text.toLowerCase()]

function contentOf(text: string | undefined): Table {
  if (text === undefined) return {}
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    value = undefined
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new ServiceError('malformed', 'SKEIN_PROVISION_BS_CONTENT must be a JSON object')
  return value as Table
}

/** Converts TOML values to JSON values: dates become texts. */
const plain = (table: Table) => JSON.parse(JSON.stringify(table)) as Table
