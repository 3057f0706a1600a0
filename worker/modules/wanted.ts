/** A module as an assignment names it. */
import type { ModuleRef } from '#proto/index.ts'

export type WantedModule = {
  /** `sha256:` and 64 hexadecimal digits. */
  digest: string
  sizeBytes: number
  /** Where to ask, and under which name; see `ModuleRef` of the protocol. */
  sourceAddress: string
  reference: string
  /** What lets this worker in there. */
  ticket: string
}

export function toWanted({ digest, sizeBytes, sourceAddress, reference, ticket }: ModuleRef): WantedModule {
  return { digest, sizeBytes: Number(sizeBytes), sourceAddress, reference, ticket }
}
