/**
 * The quota `module_bytes` of domains (contract decision 76): exact, because uploads of a limited domain run one after another. It does not
 * use `Quotas.requireRoom`: its lock is the same for all quotas of a domain, and an upload holds its lock while up to 64 MiB are stored.
 * Clients and channels of the domain could not be created meanwhile.
 */
import { requireWithin } from '#api/identity/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { countModuleBytes } from '#queues/index.ts'
import type { TaskQuotas } from '../access/access.ts'
import type { NewModule } from './modules.ts'

/** Undefined: no limit. */
export function moduleLimitOf(quotas: TaskQuotas, domainId: string | null): number | undefined {
  return domainId === null ? undefined : quotas.ofDomainId(domainId, 'module_bytes')
}

/**
 * Call it in the transaction that gives the module to a task, before it is stored. `taskKey`: the task whose module it replaces. Throws
 * `quota_exceeded`.
 */
export async function requireModuleRoom(
  tx: Transaction,
  quotas: TaskQuotas,
  { domainId, taskKey, module }: { domainId: string | null; taskKey: number | null; module: NewModule },
): Promise<void> {
  const limit = moduleLimitOf(quotas, domainId)
  if (limit === undefined) return
  await sql`SELECT pg_advisory_xact_lock(hashtextextended(${`modules of ${domainId}`}, 0))`.execute(tx)
  const { rows } = await sql<{ key: number }>`SELECT key FROM domains WHERE id = ${domainId}`.execute(tx)
  const [domain] = rows
  if (domain === undefined) return
  const used = await countModuleBytes(tx, domain.key, { taskKey, digest: module.digest })
  requireWithin({ owner: 'domain', noun: 'bytes of modules', limit, used, added: module.sizeBytes })
}
