/** References: `[registry[:port]/]repo[:tag][@digest]`, optionally with `oci://` (task manager section 6). */
import { ServiceError } from '#core/errors/index.ts'
import { isDigest } from '#core/digest.ts'

export type Reference = {
  /** Host in lower case, with its port if given; Docker Hub is always `docker.io`. */
  registry: string
  repository: string
  /** The tag to resolve if there is no digest. */
  tag: string
  /** Manifest digest; overrides the tag. */
  digest: string | undefined
}

const MAX_REFERENCE_CHARS = 1024
/** Registry and repository together (OCI distribution section 2, "Pulling manifests", note on 255 characters). */
const MAX_NAME_CHARS = 255
// The grammars of OCI distribution, "Pulling manifests": <name> and <reference> as a tag.
const REPOSITORY = /^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:\/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*$/
const TAG = /^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$/
const HOST = /^(?:\[[0-9a-f:.]+\]|[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)(?::\d{1,5})?$/
const DOCKER_HUB = new Set(['docker.io', 'index.docker.io', 'registry-1.docker.io', 'registry.hub.docker.com'])

/**
 * Parses a reference. The first part is a registry if it has a `.` or `:` or is `localhost`; without one the reference
 * belongs to `defaultRegistry`; without a tag it means `latest`. Throws `malformed` with the invalid part.
 */
export function parseReference(text: string, defaultRegistry: string | undefined): Reference {
  if (text.length > MAX_REFERENCE_CHARS) throw refuse(text, `must be at most ${MAX_REFERENCE_CHARS} characters`)
  const withoutScheme = text.startsWith('oci://') ? text.slice('oci://'.length) : text
  if (withoutScheme.includes('://')) throw refuse(text, 'must not have a scheme other than oci://')
  const [beforeDigest = '', digest, ...more] = withoutScheme.split('@')
  if (more.length > 0 || (digest !== undefined && !isDigest(digest))) {
    throw refuse(text, 'must have a digest of the form sha256:<64 hexadecimal digits> after @')
  }
  const { host, rest } = splitRegistry(beforeDigest)
  const registry = host ?? defaultRegistry
  if (registry === undefined) throw refuse(text, 'has no registry, and PROXY_REGISTRY_URL is not set')
  const colon = rest.lastIndexOf(':')
  const repository = colon < 0 ? rest : rest.slice(0, colon)
  const tag = colon < 0 ? 'latest' : rest.slice(colon + 1)
  if (!isRegistryHost(registry)) throw refuse(text, 'must begin with a registry of the form host or host:port')
  if (!REPOSITORY.test(repository)) {
    throw refuse(text, 'must have a repository of lower-case letters, digits and separators')
  }
  if (!TAG.test(tag)) throw refuse(text, 'must have a tag of at most 128 letters, digits, dots, dashes and underscores')
  if (registry.length + 1 + repository.length > MAX_NAME_CHARS) {
    throw refuse(text, `must have at most ${MAX_NAME_CHARS} characters in registry and repository`)
  }
  return familiarName({ registry: registry.toLowerCase(), repository, tag, digest })
}

/** The full reference by digest, which is immutable. */
export function pinnedReference(reference: Reference, manifestDigest: string): string {
  return `${reference.registry}/${reference.repository}@${manifestDigest}`
}

/** The full reference by tag or digest, for messages. */
export function formatReference({ registry, repository, tag, digest }: Reference): string {
  return `${registry}/${repository}${digest === undefined ? `:${tag}` : `@${digest}`}`
}

/** True for `host`, `host:port` and `[v6]:port`. */
export function isRegistryHost(text: string): boolean {
  return HOST.test(text.toLowerCase())
}

function splitRegistry(name: string): { host: string | undefined; rest: string } {
  const slash = name.indexOf('/')
  if (slash < 0) return { host: undefined, rest: name }
  const first = name.slice(0, slash)
  return /[.:]/.test(first) || first.toLowerCase() === 'localhost'
    ? { host: first, rest: name.slice(slash + 1) }
    : { host: undefined, rest: name }
}

// Docker Hub has several names, and references to its official repositories omit their namespace.
function familiarName(reference: Reference): Reference {
  if (!DOCKER_HUB.has(reference.registry)) return reference
  const { repository } = reference
  return {
    ...reference,
    registry: 'docker.io',
    repository: repository.includes('/') ? repository : `library/${repository}`,
  }
}

function refuse(text: string, rule: string): ServiceError {
  const shown = text.length > 200 ? `${text.slice(0, 200)}…` : text
  return new ServiceError('malformed', `reference "${shown}" ${rule}`, {
    details: [{ path: 'reference', message: rule }],
  })
}
