/**
 * Connections through a load balancer of SKEIN_TRUST_PROXY: reads the header of the PROXY protocol before anything else reads the
 * connection. From other addresses, and without a header, a connection is used as it is.
 */
import type { Socket } from 'node:net'
import { peerAddressOf, trustedProxies } from '#http/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { parseProxyHeader } from './proxy-header.ts'

/** The deadline for the first byte of a connection, and for its whole header. */
const HEADER_DEADLINE_MS = 5000
/** The limit of connections that have not sent their header; beyond it, the oldest of them is closed. */
const MAX_WAITING = 10_000

export type ProxiedConnectionsOptions = {
  /** SKEIN_TRUST_PROXY. */
  trustProxy: readonly string[]
  /** A header was invalid or late. */
  onRefused: () => void
  logger: Logger
}

export class ProxiedConnections {
  readonly #isTrusted: (address: string) => boolean
  readonly #options: ProxiedConnectionsOptions
  readonly #waiting = new Set<Socket>()

  constructor(options: ProxiedConnectionsOptions) {
    this.#options = options
    this.#isTrusted = trustedProxies(options.trustProxy)
  }

  /** Calls `accept` with the address of the client, at once or when the header was read. Otherwise closes the connection. */
  take(socket: Socket, accept: (address: string) => void): void {
    const proxy = peerAddressOf(socket)
    if (!this.#isTrusted(proxy)) {
      accept(proxy)
      return
    }
    if (this.#waiting.size >= MAX_WAITING) {
      // The one that has waited longest: connections that send nothing must not keep out those that do.
      const [oldest] = this.#waiting
      this.#options.onRefused()
      oldest?.destroy()
    }
    let bytes = Buffer.alloc(0)
    const end = () => {
      clearTimeout(deadline)
      this.#waiting.delete(socket)
      socket.off('readable', read).off('end', destroy).off('close', end)
    }
    const destroy = () => void socket.destroy()
    const refuse = (reason: string) => {
      this.#options.onRefused()
      this.#options.logger.info({ address: proxy, reason }, 'connection refused: invalid PROXY protocol header')
      destroy()
    }
    const read = () => {
      // All of it: without a size, only its first piece is read.
      const chunk = socket.read(socket.readableLength) as Buffer | null
      if (chunk === null) return
      bytes = Buffer.concat([bytes, chunk])
      const header = parseProxyHeader(bytes)
      if (header.state === 'incomplete') return
      if (header.state === 'invalid') {
        refuse(header.reason)
        return
      }
      end()
      const rest = header.state === 'absent' ? bytes : bytes.subarray(header.length)
      if (rest.length > 0) socket.unshift(rest)
      // The listener of errors stays, and would keep them as long as the connection.
      bytes = Buffer.alloc(0)
      accept((header.state === 'complete' ? header.address : undefined) ?? proxy)
    }
    const deadline = setTimeout(() => refuse(`no header within ${HEADER_DEADLINE_MS} ms`), HEADER_DEADLINE_MS)
    this.#waiting.add(socket)
    socket.on('readable', read).on('end', destroy).on('close', end).on('error', destroy)
  }

  /** Closes the connections that have not sent their header. */
  stop(): void {
    for (const socket of this.#waiting) socket.destroy()
  }
}
