/** A process of the platform, as others see it in the table of nodes. */
import { MIGRATIONS_FOLDER, readMigrations } from '#core/database/index.ts'
import type { Database } from '#core/database/index.ts'
import { LivingNode } from '#core/nodes/index.ts'
import type { LivingNodeOptions } from '#core/nodes/index.ts'
import { silentLogger as logger } from './database.ts'

type Options = Pick<LivingNodeOptions, 'deadAfterSeconds'>

/** It is of this build: an earlier one would have the others write older forms. */
const migration = (await readMigrations(MIGRATIONS_FOLDER)).length

const optionsOf = (database: Database) => ({ database, logger, kind: 'test', version: 'test', migration })

/** It has its row after its first sign of life, and gives none by itself. */
export function aNode(database: Database, options: Options = {}): LivingNode {
  return new LivingNode({ ...optionsOf(database), ...options })
}

export async function startLivingNode(database: Database, options: Options = {}): Promise<LivingNode> {
  return await LivingNode.start({ ...optionsOf(database), ...options })
}
