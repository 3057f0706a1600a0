/**
 * The address of a caller, for every transport. It is the only place that reads the address of a peer, so that no limit or record of one
 * transport counts a reverse proxy as the caller.
 */
import { isIP } from 'node:net'
import type { IncomingMessage } from 'node:http'
import proxyAddress from '@fastify/proxy-addr'
import { trustedProxies } from './trusted-proxies.ts'

declare module 'fastify' {
  interface FastifyInstance {
    /** Returns the address of the caller of a request to this app. A request for an upgrade is accepted too. */
    callerAddress: CallerAddress
  }
}

type Peer = { readonly remoteAddress?: string | undefined }

export type CallerAddress = (request: IncomingMessage) => string

/** The other end of a connection: a reverse proxy, or the caller. Empty for a connection that is already closed. */
export function peerAddressOf(socket: Peer): string {
  return socket.remoteAddress ?? ''
}

/** Makes another address the peer of the connection. */
export function setPeerAddress(socket: Peer, address: string): void {
  Object.defineProperty(socket, 'remoteAddress', { value: address, configurable: true })
}

/** `trustProxy` is SKEIN_TRUST_PROXY: X-Forwarded-For counts from these peers alone. */
export function callerAddressBehind(trustProxy: readonly string[]): CallerAddress {
  if (trustProxy.length === 0) return ({ socket }) => peerAddressOf(socket)
  const isTrusted = trustedProxies(trustProxy)
  return (request) => {
    const address = proxyAddress(request, isTrusted)
    // A trusted proxy can pass a value that is not an address.
    return isIP(address) === 0 ? peerAddressOf(request.socket) : address
  }
}
