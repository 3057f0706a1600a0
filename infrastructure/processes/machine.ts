/** Hints and limits that the processes of one machine share without Redis; several machines share them through Redis. */
import type { HintPeers } from '#core/bus/index.ts'
import type { SharedLimits } from '#core/limits/index.ts'

export type Machine = {
  readonly hints: HintPeers
  readonly limits: SharedLimits
}
