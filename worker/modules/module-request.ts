/** A module as an assignment names it. */
import type { ModuleRef } from '#proto/index.ts'

export type ModuleRequest = {
  /** `sha256:` and 64 hexadecimal digits. */
  digest: string
  sizeBytes: number
  /** Where to ask, and under which name; see `ModuleRef` of the protocol. */
  sourceAddress: string
  reference: string
  /** What lets this worker in there. */
  ticket: string
  /** Workers of the site to ask before the source. */
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
