/** What a worker is told about a module: where it is, who of its site has it, and the ticket that lets it in there. */
import type { MessageInitShape } from '@bufbuild/protobuf'
import type { ModuleRefSchema } from '#proto/index.ts'
import type { TicketOffice } from './tickets.ts'

export type AssignedModule = {
  digest: string
  sizeBytes: number
  /** The full reference of a registry's module; null: uploaded, served by the managers. */
  reference: string | null
}

/** A worker of the same site that has the module or is getting it. */
export type ModulePeer = { address: string; workerId: string }

export type ModuleRefs = {
  of(workerId: string, module: AssignedModule, peers: readonly ModulePeer[]): MessageInitShape<typeof ModuleRefSchema>
}

export function createModuleRefs(proxyAddress: string, tickets: TicketOffice): ModuleRefs {
  return {
    of(workerId, { digest, sizeBytes, reference: given }, peers) {
      const reference = given ?? ''
      return {
        digest,
        sizeBytes: BigInt(sizeBytes),
        sourceAddress: given === null ? '' : proxyAddress,
        reference,
        ticket: tickets.ticketFor({ workerId, digest, reference }),
        peers: [...peers],
      }
    },
  }
}
