/** Downloads modules over `ModuleService`, from the manager or from a proxy, whichever the assignment names. */
import { reachableFrom } from '#proto/index.ts'
import type { Dialling } from '#proto/index.ts'
import type { ManagerCredentials } from '../session/credentials.ts'
import { fetchStream } from './fetch-stream.ts'
import type { ModuleSource } from './module-cache.ts'

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
  /** Looks anew whom it dials and with what, from the next download on: the worker shows another certificate. */
  redial: () => void
}

export function createGrpcModuleSource({
  credentials,
  managerAddress,
  bearer,
}: GrpcModuleSourceDeps): GrpcModuleSource {
  /** How an address is dialled takes a handshake to find out where the certificate is pinned. */
  const known = new Map<string, Promise<Dialling>>()

  const diallingOf = (address: string) => {
    let dialling = known.get(address)
    if (dialling === undefined) {
      dialling = credentials.channel(address)
      known.set(address, dialling)
      dialling.catch(() => known.delete(address))
    }
    return dialling
  }

  return {
    async *source(wanted, offset, signal) {
      const named = wanted.sourceAddress
      const address = named === '' ? managerAddress : reachableFrom(named, managerAddress)
      const dialling = await diallingOf(address)
      const deadlines = { firstMs: CHUNK_DEADLINE_MS, chunkMs: CHUNK_DEADLINE_MS }
      yield* fetchStream({ address, dialling, wanted, offset, bearer: bearer(), ...deadlines }, signal)
    },
    redial: () => known.clear(),
  }
}
