/**
 * The configuration file: TOML, read by key in any table, as older programs wrote it. Skein saves its tokens in the login
 * store instead; a `user_token` in the file is used.
 */
import { chmodSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { TomlError, parse } from 'smol-toml'
import { CommandError, UsageError } from './failures.ts'
import { parseAddress } from './settings.ts'
import type { Addresses, Environment } from './settings.ts'
import { isRecord } from './values.ts'

type Kind = 'url' | 'text' | 'count' | 'boolean' | 'quoted boolean' | 'json'

/** Keys that `skein config` sets, with their table and type. */
export const CONFIG_KEYS: Readonly<Record<string, { table?: string; kind: Kind }>> = {
  raw_output: { kind: 'quoted boolean' },
  msg_content_type: { kind: 'text' },
  email: { table: 'filter', kind: 'text' },
  limit: { table: 'filter', kind: 'count' },
  offset: { table: 'filter', kind: 'count' },
  metadata: { table: 'filter', kind: 'json' },
  name: { table: 'filter', kind: 'text' },
  state: { table: 'filter', kind: 'text' },
  status: { table: 'filter', kind: 'text' },
  topic: { table: 'filter', kind: 'text' },
  contact: { table: 'filter', kind: 'text' },
  url: { table: 'remotes', kind: 'url' },
  manager_url: { table: 'remotes', kind: 'url' },
  users_url: { table: 'remotes', kind: 'url' },
  clients_url: { table: 'remotes', kind: 'url' },
  things_url: { table: 'remotes', kind: 'url' },
  channels_url: { table: 'remotes', kind: 'url' },
  groups_url: { table: 'remotes', kind: 'url' },
  domains_url: { table: 'remotes', kind: 'url' },
  invitations_url: { table: 'remotes', kind: 'url' },
  http_adapter_url: { table: 'remotes', kind: 'url' },
  reader_url: { table: 'remotes', kind: 'url' },
  journal_url: { table: 'remotes', kind: 'url' },
  bootstrap_url: { table: 'remotes', kind: 'url' },
  certs_url: { table: 'remotes', kind: 'url' },
  provision_url: { table: 'remotes', kind: 'url' },
  auth_url: { table: 'remotes', kind: 'url' },
  host_url: { table: 'remotes', kind: 'url' },
  tls_verification: { table: 'remotes', kind: 'boolean' },
}

/** A new file contains no address and no token. Numbers are in quotes, as older programs read them. */
const NEW_FILE = `raw_output = "false"
msg_content_type = "application/senml+json"

[filter]
offset = "0"
limit = "10"

[remotes]
tls_verification = true
`

export type ConfigFile = {
  path: string
  values: Readonly<Record<string, string>>
  addresses: Addresses
  /** The file that names the addresses. */
  addressesFrom: string
  /** Whether it is in the current folder and was not named: another person can have written it. */
  isOfFolder: boolean
}

const MAX_FOLDER_FILE_BYTES = 1024 * 1024

/** Keys of the file in the current folder that need no consent: filters and output. */
const HARMLESS_KEYS: ReadonlySet<string> = new Set([
  'raw_output',
  'msg_content_type',
  ...Object.entries(CONFIG_KEYS).flatMap(([key, { table }]) => (table === 'filter' ? [key] : [])),
])
/** All keys that are read. */
const READ_KEYS = [...Object.keys(CONFIG_KEYS), 'user_token']

/** The configuration folder of the user. */
export function configFolder(environment: Environment): string {
  const own = environment['SKEIN_CONFIG_DIR']
  if (own !== undefined && own !== '') return own
  const base = environment['XDG_CONFIG_HOME']
  return join(base !== undefined && base !== '' ? base : join(homedir(), '.config'), 'skein')
}

export const ownConfigPath = (environment: Environment): string => join(configFolder(environment), 'config.toml')

/** Contexts, logins and consents for folders. */
export const contextsPathOf = (environment: Environment): string => join(configFolder(environment), 'contexts.json')

/** Addresses, TLS verification and tokens of a file, in the order of their keys. */
export function sensitiveValues({ values }: ConfigFile): (readonly [string, string])[] {
  return READ_KEYS.filter((key) => !HARMLESS_KEYS.has(key))
    .toSorted()
    .flatMap((key) => (values[key] === undefined ? [] : [[key, values[key]] as const]))
}

/** Takes filters and output from the file of the folder, everything else from the file of the user. */
export function restrictedBy(file: ConfigFile, own: ConfigFile): ConfigFile {
  const harmless = Object.entries(file.values).filter(([key]) => HARMLESS_KEYS.has(key))
  return { ...own, path: file.path, values: { ...own.values, ...Object.fromEntries(harmless) } }
}

/** Reads the named file, else `./config.toml`, else the file of the user, which is created if it is missing. */
export function readConfigFile(named: string | undefined, environment: Environment): ConfigFile {
  const own = ownConfigPath(environment)
  const isNamed = named !== undefined && named !== ''
  const candidates = isNamed ? [resolve(named)] : [resolve('config.toml'), own]
  for (const path of candidates) {
    const isOfFolder = !isNamed && path !== own
    const text = readIfThere(path, isOfFolder)
    if (text !== undefined) return parseConfigFile(path, text, isOfFolder)
  }
  const path = candidates.at(-1) ?? own
  try {
    writePrivate(path, NEW_FILE)
  } catch (error) {
    // A read-only home directory is not an error; failing to create a named file is.
    if (isNamed) throw new CommandError(`cannot create ${path}: ${(error as Error).message}`)
  }
  return parseConfigFile(path, NEW_FILE, false)
}

function parseConfigFile(path: string, text: string, isOfFolder: boolean): ConfigFile {
  let document: Record<string, unknown>
  try {
    document = parse(text)
  } catch (error) {
    const reason = error instanceof TomlError ? `line ${error.line}: ${error.message.split('\n')[0]}` : String(error)
    throw new CommandError(`${path} is not TOML: ${reason}`, 'correct the line, or name another file with --config')
  }
  const values: Record<string, string> = {}
  const take = (key: string, value: unknown) => {
    if (['string', 'number', 'boolean', 'bigint'].includes(typeof value) && value !== '') values[key] = String(value)
  }
  for (const [key, value] of Object.entries(document)) {
    if (isRecord(value)) for (const [inner, one] of Object.entries(value)) take(inner, one)
    else take(key, value)
  }
  const addresses: Record<string, string> = {}
  for (const [key, { kind }] of Object.entries(CONFIG_KEYS)) {
    const value = values[key]
    if (kind === 'url' && value !== undefined) addresses[key] = parseAddress(value, `${key} in ${path}`)
  }
  return { path, values, addresses, addressesFrom: path, isOfFolder }
}

/** Sets one key and keeps the rest of the file, comments included. Returns the path. */
export function setConfigKey(file: ConfigFile, key: string, value: string): void {
  const known = CONFIG_KEYS[key]
  if (known === undefined) throw new CommandError(`unknown key ${key}`, `keys: ${Object.keys(CONFIG_KEYS).join(', ')}`)
  const line = `${key} = ${renderValue(key, known.kind, value)}`
  const text = readIfThere(file.path, false) ?? NEW_FILE
  const lines = text.split('\n')
  const at = lines.findIndex((one) => new RegExp(`^\\s*${key}\\s*=`).test(one))
  if (at >= 0) lines[at] = line
  else if (known.table === undefined) lines.unshift(line)
  else {
    const header = lines.findIndex((one) => one.trim() === `[${known.table}]`)
    if (header >= 0) lines.splice(header + 1, 0, line)
    else lines.push(`[${known.table}]`, line, '')
  }
  const next = lines.join('\n')
  // Refuses a file whose form a change by line would break (inline tables, multi-line values).
  if (value !== '' && parseConfigFile(file.path, next, false).values[key] === undefined)
    throw new CommandError(`cannot set ${key} in ${file.path}`, 'edit the file instead')
  writePrivate(file.path, next)
}

function renderValue(key: string, kind: Kind, value: string): string {
  if (kind === 'url') return JSON.stringify(parseAddress(value, key))
  if (kind === 'count' && !/^\d{1,9}$/.test(value)) throw new UsageError(`${key} must be a whole number`)
  if (kind === 'boolean' || kind === 'quoted boolean') {
    if (value !== 'true' && value !== 'false') throw new UsageError(`${key} must be true or false`)
    return kind === 'boolean' ? value : JSON.stringify(value)
  }
  if (kind === 'json' && value !== '') {
    try {
      JSON.parse(value)
    } catch {
      throw new UsageError(`${key} must be JSON`)
    }
  }
  return JSON.stringify(value)
}

function readIfThere(path: string, isOfFolder: boolean): string | undefined {
  try {
    // Reading a pipe or a device in a foreign folder could block forever.
    if (isOfFolder) requirePlain(path)
    return readFileSync(path, 'utf8')
  } catch (error) {
    if (error instanceof CommandError) throw error
    if (['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '')) return undefined
    throw new CommandError(`cannot read ${path}: ${(error as Error).message}`)
  }
}

function requirePlain(path: string): void {
  const found = statSync(path)
  if (!found.isFile() || found.size > MAX_FOLDER_FILE_BYTES)
    throw new CommandError(`${path} must be a plain file of at most ${MAX_FOLDER_FILE_BYTES} bytes`)
}

function writePrivate(path: string, text: string): void {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 })
  writeFileSync(path, text, { mode: 0o600 })
  chmodSync(path, 0o600)
}
