/**
 * Whether a connection comes from a reverse proxy of SKEIN_TRUST_PROXY, for protocols other than HTTP. The syntax is that of
 * Fastify's `trustProxy`: addresses, subnets with a prefix length or a netmask, and the names of three ranges.
 */
import { BlockList, isIP, isIPv4 } from 'node:net'

const NAMED_RANGES: Readonly<Record<string, readonly string[]>> = {
  loopback: ['127.0.0.1/8', '::1/128'],
  linklocal: ['169.254.0.0/16', 'fe80::/10'],
  uniquelocal: ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', 'fc00::/7'],
}
/** How a dual-stack socket shows an IPv4 peer (RFC 4291 section 2.5.5.2). */
const MAPPED_PREFIX = '::ffff:'

/** Throws for a subnet that is none. */
export function trustedProxies(addresses: readonly string[]): (address: string) => boolean {
  if (addresses.length === 0) return () => false
  const trusted = new BlockList()
  for (const subnet of addresses.flatMap((one) => NAMED_RANGES[one] ?? [one])) add(trusted, subnet)
  return (address) => {
    const plain = withoutMapping(address)
    return isIP(plain) !== 0 && trusted.check(plain, familyOf(plain))
  }
}

/** The IPv4 address of an IPv4-mapped one; any other unchanged. */
export function withoutMapping(address: string): string {
  const rest = address.toLowerCase().startsWith(MAPPED_PREFIX) ? address.slice(MAPPED_PREFIX.length) : ''
  return isIPv4(rest) ? rest : address
}

function add(trusted: BlockList, subnet: string): void {
  const [network = '', range] = subnet.split('/', 2)
  const address = withoutMapping(network)
  if (isIP(address) === 0) throw new RangeError(`SKEIN_TRUST_PROXY: ${subnet} is not an address or subnet`)
  if (range === undefined) {
    trusted.addAddress(address, familyOf(address))
    return
  }
  const mappedBits = address === network ? 0 : 96
  const bits = isIPv4(range) ? bitsOf(range) : /^\d{1,3}$/.test(range) ? Number(range) - mappedBits : -1
  if (bits < 0 || bits > (isIPv4(address) ? 32 : 128))
    throw new RangeError(`SKEIN_TRUST_PROXY: ${subnet} is not an address or subnet`)
  trusted.addSubnet(address, bits, familyOf(address))
}

/** The prefix length of a netmask; -1 for one with gaps. */
function bitsOf(netmask: string): number {
  const binary = netmask
    .split('.')
    .map((octet) => Number(octet).toString(2).padStart(8, '0'))
    .join('')
  return /^1*0*$/.test(binary) ? binary.replaceAll('0', '').length : -1
}

function familyOf(address: string): 'ipv4' | 'ipv6' {
  return isIPv4(address) ? 'ipv4' : 'ipv6'
}
