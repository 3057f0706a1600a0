/** Addresses that other machines do not reach. */
const LOOPBACK = /^(?:127\.\d+\.\d+\.\d+|::1|localhost)$/

/** Whether a listener on this address, as SKEIN_HOST names it, is reached from this machine alone. */
export const isLoopbackHost = (host: string): boolean => LOOPBACK.test(host)

/**
 * Whether other machines reach what listens on loopback here: through a reverse proxy, which one of the two settings
 * tells of.
 */
export function isPublishedElsewhere({
  trustProxy,
  publicUrl,
}: {
  trustProxy: readonly string[]
  publicUrl: string
}): boolean {
  return trustProxy.length > 0 || !isLoopbackHost(new URL(publicUrl).hostname.replaceAll(/[[\]]/g, ''))
}
