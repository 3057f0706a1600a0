/** The route: an alias of a domain or channel in message paths (decision 23, contract 4.2). */
import { refusedField } from '#core/errors/index.ts'
import { isId, newToken } from '#core/ids.ts'

const ROUTE = /^[A-Za-z][A-Za-z0-9_-]{0,35}$/
const MAX_ROUTE_CHARS = 36
/** Length of the random suffix of a generated route. */
const SUFFIX_BYTES = 4

/**
 * Throws `malformed`. `reserved` are the first path segments of the API, which the route of a domain must not shadow.
 */
export function parseRouteName(route: string, field: string, reserved: ReadonlySet<string>): string {
  const refuse = (message: string) => refusedField(`/${field}`, message)
  if (isId(route)) throw refuse('must not look like a UUID')
  if (!ROUTE.test(route)) throw refuse('must begin with a letter and contain at most 36 letters, digits, _ or -')
  if (reserved.has(route.toLowerCase())) throw refuse('is reserved: it is a path of the API')
  return route
}

/** Generates a route from the letters and digits of a name, with a random suffix that makes it unique. */
export function routeFromName(name: string): string {
  const suffix = newToken(SUFFIX_BYTES).replaceAll(/[-_]/g, '0').toLowerCase()
  const words = name
    .normalize('NFKD')
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replace(/^[^a-z]+/, '')
    .replace(/-$/, '')
  const stem = words === '' ? 'domain' : words
  return `${stem.slice(0, MAX_ROUTE_CHARS - suffix.length - 1)}-${suffix}`
}
