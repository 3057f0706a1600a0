/**
 * Fetches a module from workers of the same site before its source. After any failure of a peer the source continues from
 * the same offset; the cache verifies the bytes of both.
 */
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { TransferClient } from '#core/transfer/index.ts'
import { NOTHING, fetchModule } from './fetch-module.ts'
import type { ModuleSource } from './module-cache.ts'
import type { SiteTrust } from './site-trust.ts'
import type { Peer, ModuleRequest } from './module-request.ts'

export type PeerTimeouts = {
  /** Milliseconds until a peer answers that it has the module or is fetching it. */
  firstMs: number
  /** Milliseconds between two pieces. */
  pieceMs: number
}

export const PEER_TIMEOUTS: PeerTimeouts = { firstMs: 5_000, pieceMs: 10_000 }

export type PeerSourceDeps = { trust: SiteTrust; source: ModuleSource; logger: Logger; waits?: PeerTimeouts }

export function createPeerSource({ trust, source, logger, waits = PEER_TIMEOUTS }: PeerSourceDeps): ModuleSource {
  async function* askPeer(peer: Peer, wanted: ModuleRequest, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    const dialling = trust.dial(peer)
    if (dialling === undefined) throw new ServiceError('unavailable', 'this worker has no certificate yet')
    const { tls } = dialling
    const limits = { headersMs: waits.firstMs, stallMs: waits.pieceMs }
    const client = new TransferClient({ userAgent: 'skein-worker', limits, dial: () => tls ?? {} })
    try {
      yield* fetchModule({ client, address: peer.address, isTls: tls !== undefined, wanted, offset: 0 }, signal)
    } finally {
      client.close()
    }
  }

  return async function* (wanted, offset, signal) {
    let position = offset
    // Once bytes have arrived, other workers can follow this download: it continues at the source, never at another peer,
    // which may follow it. This prevents circular waits.
    for (const peer of offset === 0 ? wanted.peers : []) {
      let hasBegun = false
      try {
        for await (const chunk of askPeer(peer, wanted, signal)) {
          hasBegun = true
          position += chunk.length
          yield chunk
        }
        if (position >= wanted.sizeBytes) return
      } catch (error) {
        signal.throwIfAborted()
        const { digest } = wanted
        logger.debug({ digest, peer: peer.workerId, err: error }, 'a worker of the site failed to send a module')
      }
      if (hasBegun) break
    }
    yield NOTHING
    yield* source(wanted, position, signal)
  }
}
