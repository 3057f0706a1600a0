/** A module of an assignment. */
import type { ModuleRef } from '#proto/index.ts'

export type ModuleRequest = {
  /** `sha256:` and 64 hexadecimal digits. */
  digest: string
  sizeBytes: number
  /** The source of the module and its name there; see `ModuleRef` of the protocol. */
  sourceAddress: string
  reference: string
  /** The permission of this worker for the download. */
  ticket: string
  /** Workers of the site to try before the source. */
  peers: readonly Peer[]
}

export type Peer = { address: string; workerId: string }

export function toModuleRequest({
  digest,
  sizeBytes,
  sourceAddress,
  reference,
  ticket,
  peers,
}: ModuleRef): ModuleRequest {
  return { digest, sizeBytes: Number(sizeBytes), sourceAddress, reference, ticket, peers }
}
