export { hashNeeds, memoryClassBytes } from './needs.ts'
export type { RunNeeds } from './needs.ts'
export { BACKLOG_TARGET_MS, capacityFor, choose, penaltyOf, refusalOf } from './placement.ts'
export type { PlacementFacts, WorkerView } from './placement.ts'
