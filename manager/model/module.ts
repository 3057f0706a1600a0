/** A module as a worker is told of it. */

export type AssignedModule = {
  digest: string
  sizeBytes: number
  /** The full reference of a registry's module; null: uploaded, served by the managers. */
  reference: string | null
}

/** A worker of the same site that has the module or is getting it. */
export type ModulePeer = { address: string; workerId: string }
