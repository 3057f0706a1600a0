/**
 * Gives modules of the cache to workers of the same site, those that are still on their way included. Who asks shows the
 * ticket of its own assignment, and over TLS the certificate of the worker that the ticket names.
 */
import { create } from '@bufbuild/protobuf'
import { Server, logVerbosity, setLogVerbosity, status } from '@grpc/grpc-js'
import { PROTOCOL_STATUS, ServiceError, kindOf, presentError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { monotonicMs, withDeadline } from '#core/time.ts'
import { FetchResponseSchema, ModuleService, createChunkBuffer, sendChunk, serviceDefinition } from '#proto/index.ts'
import type { FetchRequest, FetchResponse, ServerWritableStream, ServiceHandlers } from '#proto/index.ts'
import type { ModuleCache, SharedModule } from './module-cache.ts'
import type { SiteTrust } from './site-trust.ts'

export type PeerServer = { port: number; close: () => Promise<void> }

export type PeerServerDeps = {
  host: string
  port: number
  trust: SiteTrust
  modules: ModuleCache
  logger: Logger
  limits?: PeerLimits
}

export type PeerLimits = {
  /** Streams at a time; one more is refused, and the worker asks another one or the source. */
  maxStreams: number
  /** How long one waits for a module that the manager has told this worker to get, and that it has not heard of yet. */
  graceMs: number
  /** Between empty chunks while the module itself is awaited. */
  waitingChunkMs: number
  /** How long a reader may leave one chunk untaken. */
  chunkDeadlineMs: number
}

export const PEER_LIMITS: PeerLimits = {
  maxStreams: 16,
  graceMs: 3_000,
  waitingChunkMs: 2_000,
  chunkDeadlineMs: 30_000,
}

const CHUNK_BYTES = 256 * 1024
/** Requests hold a digest, a reference and a ticket. */
const MAX_REQUEST_BYTES = 16 * 1024
const DIGEST = /^sha256:[0-9a-f]{64}$/

type FetchCall = ServerWritableStream<FetchRequest, FetchResponse>
type ConnectedCall = { getAuthContext(): { sslPeerCertificate?: { subject: { CN?: unknown } } } | null }

/** Throws `unavailable` when the port is taken. */
export async function startPeerServer(deps: PeerServerDeps): Promise<PeerServer> {
  const { host, port, trust, modules, logger, limits = PEER_LIMITS } = deps
  const closing = new AbortController()
  let streams = 0

  async function fetch(call: FetchCall): Promise<void> {
    requireAsker(trust, call)
    if (streams >= limits.maxStreams) {
      throw new ServiceError('rate_limited', `${limits.maxStreams} modules are being given already`)
    }
    streams += 1
    try {
      const shared = await untilShared(call)
      if (shared === undefined) throw new ServiceError('not_found', 'the module is not here')
      try {
        await send(call, shared)
      } finally {
        await shared.close()
      }
    } finally {
      streams -= 1
    }
  }

  /** An assignment of this worker may still be on its way while the one that came after it is there already. */
  async function untilShared(call: FetchCall): Promise<SharedModule | undefined> {
    const endMs = monotonicMs() + limits.graceMs
    for (;;) {
      const { news } = modules
      const shared = await modules.share(call.request.digest)
      const restMs = endMs - monotonicMs()
      if (shared !== undefined || restMs <= 0 || call.cancelled || closing.signal.aborted) return shared
      await within(news, restMs)
    }
  }

  async function send(call: FetchCall, shared: SharedModule): Promise<void> {
    let position = Number(call.request.offset)
    if (position > shared.sizeBytes) throw new ServiceError('not_found', `the module has ${shared.sizeBytes} bytes`)
    const cancelled = new Promise<void>((resolve) => call.once('cancelled', () => resolve()))
    const buffer = createChunkBuffer(CHUNK_BYTES)
    const write = async (sizeBytes: number) => {
      const taken = sendChunk(call, buffer, sizeBytes, (data) => create(FetchResponseSchema, { data }))
      await withDeadline(Promise.race([taken, cancelled]), limits.chunkDeadlineMs, 'giving a chunk')
    }
    // The asker hears at once that it has found somebody, and may be followed itself.
    await write(0)
    while (position < shared.sizeBytes && !call.cancelled) {
      closing.signal.throwIfAborted()
      const { news } = modules
      const readable = Math.min(shared.readableBytes() - position, CHUNK_BYTES)
      if (readable <= 0) {
        if (!(await within(news, limits.waitingChunkMs))) await write(0)
        continue
      }
      const { bytesRead } = await shared.handle.read(buffer.space, 0, readable, position)
      if (bytesRead === 0) throw new ServiceError('unavailable', 'the file of the module ends too early')
      position += bytesRead
      await write(bytesRead)
    }
    call.end()
  }

  const handlers: ServiceHandlers<typeof ModuleService> = {
    resolve: (_call, callback) => {
      callback({ code: status.UNIMPLEMENTED, details: 'a worker has no registry; ask the proxy for references' })
    },
    fetch: (call) => {
      fetch(call).catch((error: unknown) => {
        const kind = kindOf(error)
        if (kind === 'internal') logger.error({ err: error }, 'a module could not be given to a worker of the site')
        call.emit('error', { code: PROTOCOL_STATUS[kind].grpc, details: presentError(error).message })
      })
    },
  }
  // The library would write lines of its own to stderr beside the error that it reports.
  setLogVerbosity(logVerbosity.NONE)
  const server = new Server({ 'grpc.max_receive_message_length': MAX_REQUEST_BYTES })
  server.addService(serviceDefinition(ModuleService), handlers)
  const bound = await bind(server, { host, port, trust })
  return {
    port: bound,
    close: () => {
      closing.abort(new ServiceError('unavailable', 'the worker is stopping'))
      server.forceShutdown()
      return Promise.resolve()
    },
  }
}

/** Throws `unauthenticated`. */
function requireAsker(trust: SiteTrust, call: FetchCall): void {
  const { ticket, digest } = call.request
  const asker = DIGEST.test(digest)
    ? trust.verifyTicket(ticket, call.request, Math.floor(Date.now() / 1000))
    : undefined
  if (asker === undefined) {
    throw new ServiceError('unauthenticated', 'the ticket is missing, expired, or of another module')
  }
  if (!trust.isTls) return
  const shown = (call as unknown as ConnectedCall).getAuthContext()?.sslPeerCertificate?.subject.CN
  if (shown !== asker) throw new ServiceError('unauthenticated', 'the ticket is that of another worker')
}

function bind(
  server: Server,
  { host, port, trust }: { host: string; port: number; trust: SiteTrust },
): Promise<number> {
  const address = `${host.includes(':') ? `[${host}]` : host}:${port}`
  return new Promise((resolve, reject) => {
    server.bindAsync(address, trust.listener(), (cause, bound) => {
      if (cause === null) return resolve(bound)
      server.forceShutdown()
      const message = `modules cannot be shared on ${address}: is it taken? Set SKEIN_WORKER_PEER_PORT to another port`
      reject(new ServiceError('unavailable', message, { cause }))
    })
  })
}

/** False: the time was over first. */
async function within(happening: Promise<void>, waitMs: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<false>((resolve) => (timer = setTimeout(() => resolve(false), waitMs)))
  try {
    return await Promise.race([happening.then(() => true), late])
  } finally {
    clearTimeout(timer)
  }
}
