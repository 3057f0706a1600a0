/** A module as it is sent to a worker. */

export type AssignedModule = {
  digest: string
  sizeBytes: number
  /** The full reference of a registry's module; null: uploaded, served by the managers. */
  reference: string | null
}

/** A worker of the same site that has the module or is fetching it. */
export type ModulePeer = { address: string; workerId: string }
