/**
 * Addresses and output. A flag overrides the environment, which overrides the context in use, the configuration file and
 * the built-in defaults (contract sections 13 and 15).
 */
import { withoutTrailing } from '#core/text.ts'
import { CommandError } from './failures.ts'
import type { FlagName, GivenFlags } from './flags.ts'
import { ADDRESS_KEYS } from './services.ts'
import type { ServiceName } from './services.ts'

export type Environment = Readonly<Record<string, string | undefined>>

const FLAG_OF_KEY: Readonly<Record<string, FlagName>> = {
  url: 'url',
  manager_url: 'manager-url',
  users_url: 'users-url',
  clients_url: 'clients-url',
  channels_url: 'channels-url',
  groups_url: 'groups-url',
  domains_url: 'domains-url',
  invitations_url: 'invitations-url',
  http_adapter_url: 'http-url',
  reader_url: 'reader-url',
  journal_url: 'journal-url',
  bootstrap_url: 'bootstrap-url',
  certs_url: 'certs-url',
  provision_url: 'provision-url',
  auth_url: 'auth-url',
  host_url: 'host-url',
}

/** The default ports on this machine. */
const BUILT_IN: Readonly<Record<ServiceName, string>> = {
  users: 'http://127.0.0.1:9002',
  clients: 'http://127.0.0.1:9000',
  channels: 'http://127.0.0.1:9005',
  groups: 'http://127.0.0.1:9000',
  domains: 'http://127.0.0.1:8189',
  invitations: 'http://127.0.0.1:9020',
  http: 'http://127.0.0.1:8080/http',
  reader: 'http://127.0.0.1:8080',
  journal: 'http://127.0.0.1:8080',
  bootstrap: 'http://127.0.0.1:9013',
  certs: 'http://127.0.0.1:9019',
  provision: 'http://127.0.0.1:9016',
  auth: 'http://127.0.0.1:8080',
  host: 'http://127.0.0.1:8080',
  manager: 'http://127.0.0.1:7070',
}

/** Addresses of one source, by the keys above, and `url` for all services. */
export type Addresses = Readonly<Record<string, string>>

/** `from` is the source of the address, `key` its key if it has one of its own. */
export type Address = { url: string; from: string; key?: string }

/** The settings of a command. */
export type Settings = {
  address: (service: ServiceName) => Address
  /** Addresses that flags and the environment set. */
  givenAddresses: Addresses
  isInsecure: boolean
  isCurl: boolean
  isRaw: boolean
  contentType: string
  /** A filter of listings: the flag, else the configuration file. */
  filter: (name: FlagName) => string | undefined
  environment: Environment
  contextName: string
  contextsPath: string
  configPath: string
  /** The domain of the flag, the environment or the context. */
  domain: string | undefined
  /** A token of the environment or the configuration file, its source, and the services that it can be sent to. */
  token: { value: string; from: string; isFor: (service: ServiceName) => boolean } | undefined
  version: string
}

/** Throws CommandError unless it is http or https with a host. */
export function parseAddress(value: string, name: string): string {
  let url: URL
  try {
    url = new URL(value)
  } catch {
    throw new CommandError(`${name} must be a URL such as http://127.0.0.1:8080, not ${value}`)
  }
  if ((url.protocol !== 'http:' && url.protocol !== 'https:') || url.hostname === '')
    throw new CommandError(`${name} must be an http or https URL, not ${value}`)
  if (url.username !== '' || url.password !== '')
    throw new CommandError(`${name} must not contain credentials`, 'log in with skein login')
  return withoutTrailing(value, '/')
}

/** Addresses that flags set. */
export function flagAddresses(flags: GivenFlags): Addresses {
  return Object.fromEntries(
    Object.entries(FLAG_OF_KEY).flatMap(([key, flag]) => {
      const value = flags.get(flag)
      return value === undefined ? [] : [[key, parseAddress(value, `--${flag}`)]]
    }),
  )
}

export function environmentAddresses(environment: Environment): Addresses {
  return Object.fromEntries(
    [
      ['url', 'SKEIN_URL'],
      ['manager_url', 'SKEIN_MANAGER_URL'],
    ].flatMap(([key = '', name = '']) => {
      const value = environment[name]
      return value === undefined || value === '' ? [] : [[key, parseAddress(value, name)]]
    }),
  )
}

/** The first source with an address of the service is used; within a source its own key overrides `url`. */
export function resolveAddress(
  service: ServiceName,
  sources: readonly { from: string; addresses: Addresses }[],
): Address {
  for (const { from, addresses } of sources) {
    for (const key of ADDRESS_KEYS[service]) {
      const value = addresses[key]
      if (value !== undefined) return { url: value, from, key }
    }
    const all = addresses['url']
    if (all !== undefined) return { url: service === 'http' ? `${all}/http` : all, from }
  }
  return { url: BUILT_IN[service], from: 'built in' }
}
