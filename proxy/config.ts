/** The settings of the proxy, and the rules between them (contract section 15). */
import { bytes, flag, httpUrl, list, optionalText, port, secret, text } from '#core/config/index.ts'
import type { ConfigOf, Setting } from '#core/config/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { configuredAuthorities, isLoopbackHost, isRegistryHost, mayBePlainHttp, parseRegistryUrl } from './oci/index.ts'
import type { AddressPolicy, ConfiguredRegistry, Credentials } from './oci/index.ts'

export const PROXY_SETTINGS = {
  dataDir: text('SKEIN_DATA_DIR', './data', 'Folder that holds the module cache, among other things'),
  host: text('SKEIN_HOST', '127.0.0.1', 'Address that every listener binds to'),
  port: port('SKEIN_PROXY_PORT', 7072, 'Port of the module proxy (HTTP); 0 asks the system for a free one'),
  registry: registrySetting(),
  authenticate: flag(
    'PROXY_AUTHENTICATE',
    false,
    'Log in to the registry of PROXY_REGISTRY_URL with username and password',
  ),
  username: optionalText('PROXY_REGISTRY_USERNAME', 'User name at the registry of PROXY_REGISTRY_URL'),
  password: secret('PROXY_REGISTRY_PASSWORD', 'Password or access token at the registry of PROXY_REGISTRY_URL'),
  httpHosts: list(
    'SKEIN_PROXY_HTTP_HOSTS',
    [],
    'Registries, host or host:port, that may be plain HTTP or have a private address',
  ),
  token: secret(
    'SKEIN_PROXY_TOKEN',
    'What managers and the module proxy know each other by; needed where they do not share SKEIN_DATA_DIR',
    { defaultText: 'the manager makes one, proxy-token in SKEIN_DATA_DIR' },
  ),
  managerUrl: httpUrl(
    'SKEIN_PROXY_MANAGER_URL',
    'http://127.0.0.1:7070',
    'Task manager over HTTP, from which the proxy fetches uploaded modules',
  ),
  cacheBytes: bytes(
    'SKEIN_PROXY_CACHE_BYTES',
    '4GiB',
    'Size of the module cache; the least recently used module goes first',
  ),
  tlsCert: optionalText('SKEIN_GRPC_TLS_CERT', 'PEM file with the certificate of the listeners for workers'),
  tlsKey: optionalText('SKEIN_GRPC_TLS_KEY', 'PEM file with the key of SKEIN_GRPC_TLS_CERT'),
  insecure: flag(
    'SKEIN_GRPC_INSECURE',
    false,
    'Allow connections of workers without TLS on an address other than loopback',
  ),
}

export type ProxyConfig = ConfigOf<typeof PROXY_SETTINGS>

/** Default limit of a module, as for uploads. */
export const MAX_MODULE_BYTES = 64 * 1024 * 1024

const MIN_TOKEN_CHARS = 16

/** What the settings mean together. */
export type Registration = {
  configured: ConfiguredRegistry | undefined
  credentials: Credentials | undefined
  policy: AddressPolicy
}

/** Checks the rules between settings. Throws `malformed` with a sentence that says which variable to change. */
export function checkProxyConfig(config: ProxyConfig, hasCertificate = false): Registration {
  const { registry, httpHosts, authenticate, username, password, token } = config
  const policy: AddressPolicy = { listedHosts: httpHosts, configuredAuthorities: configuredAuthorities(registry) }
  for (const host of httpHosts) {
    if (!isRegistryHost(host)) refuse(`SKEIN_PROXY_HTTP_HOSTS must be a list of host or host:port, not "${host}"`)
  }
  if (registry?.scheme === 'http:' && !mayBePlainHttp(new URL(`http://${registry.name}/`), policy)) {
    refuse(
      `PROXY_REGISTRY_URL is plain HTTP and not on loopback: add ${registry.name} to SKEIN_PROXY_HTTP_HOSTS, or use https`,
    )
  }
  if (authenticate && (registry === undefined || username === undefined || password === undefined)) {
    refuse('PROXY_AUTHENTICATE needs PROXY_REGISTRY_URL, PROXY_REGISTRY_USERNAME and PROXY_REGISTRY_PASSWORD')
  }
  if (token !== undefined && token.reveal().length < MIN_TOKEN_CHARS) {
    refuse(`SKEIN_PROXY_TOKEN must have at least ${MIN_TOKEN_CHARS} characters`)
  }
  if (config.cacheBytes < MAX_MODULE_BYTES)
    refuse(`SKEIN_PROXY_CACHE_BYTES must be at least ${MAX_MODULE_BYTES}, the size of one module`)
  if ((config.tlsCert === undefined) !== (config.tlsKey === undefined)) {
    refuse('SKEIN_GRPC_TLS_CERT and SKEIN_GRPC_TLS_KEY belong together')
  }
  if (config.tlsCert === undefined && !hasCertificate && !config.insecure && !isLoopbackHost(config.host)) {
    refuse(
      `SKEIN_HOST ${config.host} is not loopback: set SKEIN_GRPC_TLS_CERT and SKEIN_GRPC_TLS_KEY, or SKEIN_GRPC_INSECURE=true`,
    )
  }
  const credentials =
    authenticate && username !== undefined && password !== undefined ? { username, password } : undefined
  return { configured: registry, credentials, policy }
}

function registrySetting(): Setting<ConfiguredRegistry | undefined> {
  const { name, description, aliases, defaultText } = optionalText(
    'PROXY_REGISTRY_URL',
    'Registry of references that name none, such as https://ghcr.io',
  )
  // Secret: people write passwords into URLs, and an error repeats what it refuses.
  return { name, description, aliases, defaultText, fallback: undefined, isSecret: true, parse: parseRegistryUrl }
}

function refuse(message: string): never {
  throw new ServiceError('malformed', message)
}
