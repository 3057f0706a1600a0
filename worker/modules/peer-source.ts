/**
 * Asks workers of the same site for a module before the source of it. Whatever goes wrong with them, the source is asked
 * at once, from where they left off; the cache checks the bytes, whoever sent them.
 */
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { TransferClient } from '#core/transfer/index.ts'
import { NOTHING, fetchModule } from './fetch-module.ts'
import type { ModuleSource } from './module-cache.ts'
import type { SiteTrust } from './site-trust.ts'
import type { Peer, ModuleRequest } from './module-request.ts'

export type PeerTimeouts = {
  /** Milliseconds until a peer says that it has the module or is getting it. */
  firstMs: number
  /** Milliseconds between two pieces. */
  pieceMs: number
}

export const PEER_TIMEOUTS: PeerTimeouts = { firstMs: 5_000, pieceMs: 10_000 }

export type PeerSourceDeps = { trust: SiteTrust; source: ModuleSource; logger: Logger; waits?: PeerTimeouts }

export function createPeerSource({ trust, source, logger, waits = PEER_TIMEOUTS }: PeerSourceDeps): ModuleSource {
  async function* askPeer(peer: Peer, wanted: ModuleRequest, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    const dialling = trust.dial(peer)
    if (dialling === undefined) throw new ServiceError('unavailable', 'this worker has no certificate to show yet')
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
    // Once something came, others may follow this download: it goes on at the source, never at another peer, which may
    // be one of those that follow. So nobody waits for themselves.
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
