/** The quota `queued_bytes`: what tasks, notifications and named consumers keep of messages, together. */
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { boundQueuedBytes, readQueuedBytes } from './automation/index.ts'
import { DOUBT_TABLES, readDoubtBytes } from './consumers/index.ts'
import { DomainMeter, FullDomains } from './identity/index.ts'
import type { Quotas } from './identity/index.ts'
import { NOTIFICATION_TABLE, readNotificationBytes } from './provisioning/index.ts'

const NAME = 'queued_bytes'

export function createFullDomains(
  database: Pick<Database, 'db'>,
  quotas: Pick<Quotas, 'measure' | 'ofDomain'>,
  logger: Logger,
): FullDomains {
  const { db } = database
  const read = async (domainKeys: readonly number[]) => {
    const parts = await Promise.all(
      [readQueuedBytes, readNotificationBytes, readDoubtBytes].map((part) => part(db, domainKeys)),
    )
    return new Map(domainKeys.map((key) => [key, parts.reduce((sum, part) => sum + (part.get(key) ?? 0), 0)]))
  }
  const limitOf = (domainKey: number) => quotas.ofDomain(domainKey, NAME)
  // A domain that may have more than all domains have together is not full, and its rows are not read.
  const readNear = async (domainKeys: readonly number[]) => {
    const bound = await boundQueuedBytes(db, [NOTIFICATION_TABLE, ...DOUBT_TABLES])
    const near = domainKeys.filter((key) => (limitOf(key) ?? Infinity) <= bound)
    return near.length === 0 ? new Map<number, number>() : await read(near)
  }
  quotas.measure(NAME, async (domainKey) => (await read([domainKey])).get(domainKey) ?? 0)
  return new FullDomains(new DomainMeter({ limitOf, read: readNear, logger }))
}
