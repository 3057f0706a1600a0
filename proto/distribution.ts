/**
 * The pull half of the OCI distribution specification in proxy and workers: the repository name of a module, and the
 * paths.
 */

/** A GET or HEAD below `/v2/`. */
export type PullPath = {
  name: string
  kind: 'manifests' | 'blobs' | 'referrers'
  /** The digest of a blob, and of the manifest that others refer to; a tag or digest of a manifest. */
  reference: string
}

/** OCI distribution, "Pulling manifests": clients can limit a name to 255 characters. */
const MAX_NAME_CHARS = 255
const REFERENCE = /^[A-Za-z0-9._:-]{1,128}$/
const NAME = /^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:\/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*$/
/** First component of the names of uploaded modules. */
const UPLOADS = 'uploads'
/** The tag of an upload. */
export const UPLOAD_TAG = 'latest'

/** Undefined: not a path of a manifest, of a blob or of referrers. */
export function parsePullPath(path: string): PullPath | undefined {
  if (path.length > MAX_NAME_CHARS + 160) return undefined
  const parts = path.split('/')
  const [first, version, ...names] = parts.slice(0, -2)
  const [kind, reference = ''] = parts.slice(-2)
  const name = names.join('/')
  if (kind !== 'manifests' && kind !== 'blobs' && kind !== 'referrers') return undefined
  const isOne = first === '' && version === 'v2' && REFERENCE.test(reference)
  return isOne && name.length <= MAX_NAME_CHARS && NAME.test(name) ? { name, kind, reference } : undefined
}

export function formatPullPath({ name, kind, reference }: PullPath): string {
  return `/v2/${name}/${kind}/${reference}`
}

/**
 * The repository name of the module below `/v2/`. A module of a registry has its host and repository, a port joined by `_` because a name
 * has no colon (`127.0.0.1:5000/acme/add` is `127.0.0.1_5000/acme/add`, `[::1]:5000` begins `0-0-0-0-0-0-0-1_5000`). An uploaded module has
 * `uploads/` and the hexadecimal digits of its digest.
 */
export function repositoryNameOf({ digest, reference }: { digest: string; reference: string }): string {
  if (reference === '') return `${UPLOADS}/${digest.slice(digest.indexOf(':') + 1)}`
  const [repository = ''] = reference.split('@', 1)
  const slash = repository.indexOf('/')
  const host = repository.slice(0, slash)
  const [, literal, port] = /^\[([^\]]*)\](?::(\d+))?$/.exec(host) ?? []
  const named =
    literal === undefined ? host.replace(':', '_') : expand(literal) + (port === undefined ? '' : `_${port}`)
  return `${named}${repository.slice(slash)}`
}

/** An IPv6 address with all its groups, joined by dashes. */
function expand(address: string): string {
  const [head = '', tail] = address.split('::')
  const groups = (text: string) => (text === '' ? [] : text.split(':').map((group) => group.replaceAll('.', '-')))
  const [before, after] = [groups(head), groups(tail ?? '')]
  const zeros =
    tail === undefined ? [] : Array.from({ length: Math.max(0, 8 - before.length - after.length) }, () => '0')
  return [...before, ...zeros, ...after].join('-')
}
