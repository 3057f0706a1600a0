/** The response of `/.well-known/core` (RFC 6690): the paths of messages. Short, because it needs no authentication. */

type Link = { href: string; attributes: Readonly<Record<string, string>> }

const LINKS: readonly Link[] = [
  { href: '/m', attributes: { obs: '' } },
  { href: '/channels', attributes: { obs: '' } },
]

/** Links that match all filters (section 4.1): `href=/m`, `href=/ch*`, `obs`. Empty when none matches. */
export function findLinks(filters: readonly string[]): Buffer {
  const found = LINKS.filter((link) => filters.every((filter) => matches(link, filter)))
  return Buffer.from(found.map(format).join(','))
}

function matches({ href, attributes }: Link, filter: string): boolean {
  const at = filter.indexOf('=')
  const name = at === -1 ? filter : filter.slice(0, at)
  const wanted = at === -1 ? '*' : filter.slice(at + 1)
  const value = name === 'href' ? href : Object.hasOwn(attributes, name) ? attributes[name] : undefined
  if (value === undefined) return false
  return wanted.endsWith('*') ? value.startsWith(wanted.slice(0, -1)) : value === wanted
}

function format({ href, attributes }: Link): string {
  const parts = Object.entries(attributes).map(([name, value]) => (value === '' ? `;${name}` : `;${name}="${value}"`))
  return `<${href}>${parts.join('')}`
}
