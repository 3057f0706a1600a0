/** The peers that are reverse proxies of SKEIN_TRUST_PROXY. They are the same for every transport. */
import { isIP } from 'node:net'
import { compile } from '@fastify/proxy-addr'

const NAMED_RANGES: ReadonlySet<string> = new Set(['loopback', 'linklocal', 'uniquelocal'])

/** `addresses`: addresses, subnets with a prefix length or a netmask, and the named ranges. Throws for anything else. */
export function trustedProxies(addresses: readonly string[]): (address: string) => boolean {
  const trusts = addresses.map(trustIn)
  return (address) => trusts.some((trust) => trust(address, 0))
}

function trustIn(subnet: string): ReturnType<typeof compile> {
  try {
    // The package also reads short and octal IPv4 addresses, which others read differently.
    if (!NAMED_RANGES.has(subnet) && isIP(subnet.split('/', 1)[0] ?? '') === 0) throw new Error('not an IP address')
    return compile(subnet)
  } catch (error) {
    throw new RangeError(`SKEIN_TRUST_PROXY: ${subnet} is not an address or subnet`, { cause: error })
  }
}
