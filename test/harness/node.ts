/** A process of the platform, as others see it in the table of nodes. */
import type { Database } from '#core/database/index.ts'
import { LivingNode } from '#core/nodes/index.ts'
import type { LivingNodeOptions } from '#core/nodes/index.ts'
import { silentLogger as logger } from './database.ts'

type Options = Pick<LivingNodeOptions, 'deadAfterSeconds'>

const optionsOf = (database: Database) => ({ database, logger, kind: 'test', version: 'test', migration: 22 })

/** It has its row after its first sign of life, and gives none by itself. */
export function aNode(database: Database, options: Options = {}): LivingNode {
  return new LivingNode({ ...optionsOf(database), ...options })
}

export async function startLivingNode(database: Database, options: Options = {}): Promise<LivingNode> {
  return await LivingNode.start({ ...optionsOf(database), ...options })
}
