export { LivingNode, instanceOf } from './living-node.ts'
export type { Beat, LivingNodeOptions } from './living-node.ts'
export { IS_DEAD, lockDeadNode, removeNode } from './dead-nodes.ts'
export type { DeadNode } from './dead-nodes.ts'
