/**
 * The module reference of an assignment: its location, the peers of the site that have it, and the ticket for the
 * download.
 */
import type { MessageInitShape } from '@bufbuild/protobuf'
import type { ModuleRefSchema } from '#proto/index.ts'
import type { AssignedModule, ModulePeer } from '../model/module.ts'
import type { TicketIssuer } from './tickets.ts'

export type ModuleRefs = {
  of(workerId: string, module: AssignedModule, peers: readonly ModulePeer[]): MessageInitShape<typeof ModuleRefSchema>
}

export function createModuleRefs(proxyAddress: string, tickets: TicketIssuer): ModuleRefs {
  return {
    of(workerId, { digest, sizeBytes, reference: given }, peers) {
      const reference = given ?? ''
      return {
        digest,
        sizeBytes: BigInt(sizeBytes),
        sourceAddress: proxyAddress,
        reference,
        ticket: tickets.forWorker(workerId, { digest, reference }),
        peers: [...peers],
      }
    },
  }
}
