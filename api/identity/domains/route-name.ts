/** The second name of a domain or channel in message paths (decision 23, contract 4.2). */
import { refusedField } from '#core/errors/index.ts'
import { isId, newToken } from '#core/ids.ts'

const ROUTE = /^[A-Za-z][A-Za-z0-9_-]{0,35}$/
const MAX_ROUTE_CHARS = 36
/** Random characters after a route that is made from a name. */
const SUFFIX_BYTES = 4

/** Throws `malformed`. `reserved` are first path segments of the API, which a domain's route must not shadow. */
export function requireRoute(route: string, field: string, reserved: ReadonlySet<string>): string {
  const refuse = (message: string) => refusedField(`/${field}`, message)
  if (isId(route)) throw refuse('must not look like a UUID')
  if (!ROUTE.test(route)) throw refuse('must begin with a letter and have at most 36 letters, digits, _ or -')
  if (reserved.has(route.toLowerCase())) throw refuse('is a word that the API uses itself')
  return route
}

/** A route from a name: its letters and digits, and some random ones so that it is free. */
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
