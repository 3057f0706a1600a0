/** The address of a caller comes from one function for every transport: elsewhere a reverse proxy would be taken for the caller. */
import { expect, it } from 'vitest'
import { productSources } from './source-imports.ts'

/** What knows an address of its own: the peer of a socket, Fastify's view of it, and the header of reverse proxies. */
const ADDRESS = /\bremoteAddress\b|\b(?:request|req)\.ips?\b|['"]x-(?:forwarded-for|real-ip)['"]/i

const ALLOWED: Readonly<Record<string, string>> = {
  'http/callers/caller-address.ts': 'the function itself',
  'manager/access/access.ts': 'a request with a header of a proxy is not from this machine, whatever the header says',
}

it('no other file reads the address of a peer', () => {
  const sources = productSources().filter(({ path }) => !path.startsWith('console/'))
  const readers = sources.filter(({ text }) => ADDRESS.test(text)).map(({ path }) => path)
  expect(readers).toEqual(Object.keys(ALLOWED))
})
