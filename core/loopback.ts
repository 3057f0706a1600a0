/** Loopback addresses, which other machines cannot reach. */
const LOOPBACK = /^(?:127\.\d+\.\d+\.\d+|::1|localhost)$/

/** Whether a listener on this host (SKEIN_HOST) is reachable from this machine only. */
export const isLoopbackHost = (host: string): boolean => LOOPBACK.test(host)

/**
 * Whether other machines reach a loopback listener through a reverse proxy, according to the two settings.
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
