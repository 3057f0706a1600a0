/** Base URLs of registries: the configured one, Docker Hub under its API name, listed ones with either scheme. */
import { ServiceError } from '#core/errors/index.ts'
import { discard, errorCodeOf } from '#core/transfer/index.ts'
import type { TransferClient } from '#core/transfer/index.ts'
import { authorityOf, isListed, isLoopbackHost } from './address.ts'
import type { AddressPolicy } from './address.ts'
import { isRegistryHost, parseReference } from './reference.ts'

export type ConfiguredRegistry = {
  /** The name in references: `host` or `host:port`. */
  name: string
  /** Undefined: not configured; it is probed. */
  scheme: 'http:' | 'https:' | undefined
}

const DOCKER_HUB_API = 'registry-1.docker.io'

/**
 * Parses `PROXY_REGISTRY_URL`: `https://host[:port]`, `http://…` or a bare `host[:port]`. Throws an Error whose message
 * completes the sentence `PROXY_REGISTRY_URL must be …`.
 */
export function parseRegistryUrl(text: string): ConfiguredRegistry {
  const wanted = 'a registry such as https://registry.example.com or registry.example.com:5000, without a path'
  const match = /^(?:(https?):\/\/|oci:\/\/)?([^/]+?)(?:\/(?:v[12]\/?)?)?$/i.exec(text.trim())
  const host = match?.[2]
  if (match === null || host === undefined || !isRegistryHost(host)) throw new Error(wanted)
  const scheme = match[1]?.toLowerCase()
  // With a repository it is a reference, whose registry is the name in its familiar form.
  const name = parseReference('any', host).registry
  return { name, scheme: scheme === undefined ? undefined : scheme === 'http' ? 'http:' : 'https:' }
}

/** The `host:port` forms of the configured registry. */
export function configuredAuthorities(configured: ConfiguredRegistry | undefined): string[] {
  if (configured === undefined) return []
  const schemes = configured.scheme === undefined ? ['https:', 'http:'] : [configured.scheme]
  return schemes.map((scheme) => authorityOf(new URL(`${scheme}//${apiHost(configured.name)}/`)))
}

/** Maps names of registries to base URLs. The scheme of a listed one is probed once and cached. */
export type Registries = { baseUrl(registry: string, signal: AbortSignal): Promise<URL> }

const MAX_CACHED_BASE_URLS = 1000

export function createRegistries(
  configured: ConfiguredRegistry | undefined,
  policy: AddressPolicy,
  transport: TransferClient,
): Registries {
  const baseUrls = new Map<string, URL>()

  async function probe(registry: string, signal: AbortSignal): Promise<URL> {
    const secure = baseOf('https:', registry)
    try {
      discard(await transport.get(new URL('v2/', secure), {}, signal))
      return secure
    } catch (error) {
      // A wrong certificate is an answer: a fallback to plain text would defeat TLS.
      if (!isNoTls(errorCodeOf(error))) throw error
      const plain = baseOf('http:', registry)
      discard(await transport.get(new URL('v2/', plain), {}, signal))
      return plain
    }
  }

  return {
    async baseUrl(registry, signal) {
      const known = baseUrls.get(registry)
      if (known !== undefined) return known
      if (registry === configured?.name && configured.scheme !== undefined) return baseOf(configured.scheme, registry)
      const secure = baseOf('https:', registry)
      const isConfiguredLoopback = registry === configured?.name && isLoopbackHost(secure.hostname)
      if (!isConfiguredLoopback && !isListed(secure, policy) && !isListed(baseOf('http:', registry), policy))
        return secure
      const found = await probe(registry, signal)
      if (baseUrls.size >= MAX_CACHED_BASE_URLS) baseUrls.clear()
      baseUrls.set(registry, found)
      return found
    },
  }
}

function isNoTls(code: string | undefined): boolean {
  return (
    code === 'ECONNREFUSED' || code === 'ECONNRESET' || code === 'EPROTO' || (code?.startsWith('ERR_SSL_') ?? false)
  )
}

function baseOf(scheme: string, registry: string): URL {
  const text = `${scheme}//${apiHost(registry)}/`
  if (!URL.canParse(text))
    throw new ServiceError('malformed', `"${registry}" must be a registry of the form host or host:port`)
  return new URL(text)
}

function apiHost(registry: string): string {
  return registry === 'docker.io' ? DOCKER_HUB_API : registry
}
