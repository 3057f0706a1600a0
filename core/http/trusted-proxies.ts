/** Which peers are reverse proxies of SKEIN_TRUST_PROXY. The same for every transport. */
import { compile } from '@fastify/proxy-addr'

/**
 * `addresses`: addresses, subnets with a prefix length or a netmask, and `loopback`, `linklocal` or `uniquelocal`. Throws for a subnet that
 * is none.
 */
export function trustedProxies(addresses: readonly string[]): (address: string) => boolean {
  if (addresses.length === 0) return () => false
  try {
    const trusts = compile([...addresses])
    return (address) => trusts(address, 0)
  } catch (error) {
    throw new RangeError(`SKEIN_TRUST_PROXY: ${(error as Error).message}`, { cause: error })
  }
}
