/** Downloads modules over `ModuleService`, from the manager or from a proxy, whichever the assignment names. */
import { Metadata, status } from '@grpc/grpc-js'
import type { ServiceError as GrpcError } from '@grpc/grpc-js'
import { ServiceError } from '#core/errors/index.ts'
import { ModuleService, createServiceClient, reachableFrom } from '#proto/index.ts'
import type { ServiceClient } from '#proto/index.ts'
import type { ManagerCredentials } from '../session/credentials.ts'
import type { ModuleSource } from './module-cache.ts'
import type { WantedModule } from './wanted.ts'

/** A source that sends nothing for so long is given up; the download resumes where it stood. */
const CHUNK_DEADLINE_MS = 30_000
/** Chunks are 256 KiB. */
const MAX_MESSAGE_BYTES = 1024 * 1024

export type GrpcModuleSourceDeps = {
  /** Of the manager; the proxy asks for the same identity. */
  credentials: ManagerCredentials
  managerAddress: string
  /** `<worker_id>.<worker_secret>`; undefined before the first registration. */
  bearer: () => string | undefined
}

export type GrpcModuleSource = {
  source: ModuleSource
  /** Dials anew from the next download on: the worker shows another certificate. */
  redial: () => void
  close: () => void
}

export function createGrpcModuleSource(deps: GrpcModuleSourceDeps): GrpcModuleSource {
  const clients = new Map<string, Promise<ServiceClient<typeof ModuleService>>>()

  const clientFor = (address: string) => {
    let client = clients.get(address)
    if (client === undefined) {
      client = deps.credentials.channel(address).then(({ credentials, options }) =>
        createServiceClient(ModuleService, address, credentials, {
          ...options,
          'grpc.max_receive_message_length': MAX_MESSAGE_BYTES,
        }),
      )
      clients.set(address, client)
      client.catch(() => clients.delete(address))
    }
    return client
  }

  async function* fetchModule(wanted: WantedModule, offset: number, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    const client = await clientFor(
      wanted.sourceAddress === '' ? deps.managerAddress : reachableFrom(wanted.sourceAddress, deps.managerAddress),
    )
    const metadata = new Metadata()
    const bearer = deps.bearer()
    if (bearer !== undefined) metadata.set('authorization', `Bearer ${bearer}`)
    const { digest, reference, ticket } = wanted
    const request = { digest, offset: BigInt(offset), reference, ticket }
    const call = client.fetch(request, { metadata })
    // The loop below reports errors while it reads; one that comes after it, by our own cancellation, is no news.
    call.on('error', () => undefined)
    let isLate = false
    const giveUp = () => {
      isLate = true
      call.cancel()
    }
    let timer = setTimeout(giveUp, CHUNK_DEADLINE_MS)
    const onAbort = () => call.cancel()
    signal.addEventListener('abort', onAbort, { once: true })
    try {
      signal.throwIfAborted()
      for await (const { data } of call as AsyncIterable<{ data: Uint8Array }>) {
        clearTimeout(timer)
        yield data
        timer = setTimeout(giveUp, CHUNK_DEADLINE_MS)
      }
    } catch (error) {
      if (isLate) throw new ServiceError('timeout', `${wanted.digest}: no data for ${CHUNK_DEADLINE_MS} ms`)
      throw explain(error, wanted)
    } finally {
      clearTimeout(timer)
      signal.removeEventListener('abort', onAbort)
      call.cancel()
    }
  }

  /** Downloads under way on them end by themselves, or are resumed. */
  const closeAll = () => {
    for (const client of clients.values()) {
      client.then(
        (opened) => opened.close(),
        () => undefined,
      )
    }
    clients.clear()
  }
  return { source: fetchModule, redial: closeAll, close: closeAll }
}

function explain(error: unknown, wanted: WantedModule): unknown {
  const { code, details } = error as Partial<GrpcError>
  if (code === undefined) return error
  const message = `module ${wanted.digest}: ${details ?? 'the source failed'}`
  switch (code) {
    case status.NOT_FOUND:
    case status.OUT_OF_RANGE:
      return new ServiceError('not_found', message, { cause: error })
    case status.INVALID_ARGUMENT:
    case status.FAILED_PRECONDITION:
      return new ServiceError('unprocessable', message, { cause: error })
    case status.UNAUTHENTICATED:
    case status.PERMISSION_DENIED:
      return new ServiceError('forbidden', message, { cause: error })
    default:
      return new ServiceError('unavailable', message, { cause: error })
  }
}
