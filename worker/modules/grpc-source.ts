/** Downloads modules over `ModuleService`, from the manager or from a proxy, whichever the assignment names. */
import { Metadata } from '@grpc/grpc-js'
import { ModuleService, createServiceClient, reachableFrom } from '#proto/index.ts'
import type { ServiceClient } from '#proto/index.ts'
import type { ManagerCredentials } from '../session/credentials.ts'
import { CHANNEL_OPTIONS, fetchStream } from './fetch-stream.ts'
import type { ModuleSource } from './module-cache.ts'
import type { WantedModule } from './wanted.ts'

/** A source that sends nothing for so long is given up; the download resumes where it stood. */
const CHUNK_DEADLINE_MS = 30_000

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
          ...CHANNEL_OPTIONS,
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
    const deadlines = { firstMs: CHUNK_DEADLINE_MS, chunkMs: CHUNK_DEADLINE_MS }
    yield* fetchStream(client, { wanted, offset, metadata, ...deadlines }, signal)
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
