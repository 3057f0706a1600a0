/** What a caller is shown beside the record: by which role he has access (contract 2.4). */
import type { DomainAccess, EffectiveAccess } from '#api/identity/index.ts'
import type { ConnectableRecord, ConnectableType } from './record.ts'

/** The items of a page by their domain, each with the domain as the caller entered it. */
export function byDomain<R extends ConnectableRecord>(
  domains: readonly DomainAccess[],
  items: readonly R[],
): { domain: DomainAccess; items: R[] }[] {
  const entered = new Map(domains.map((domain) => [domain.domainKey, { domain, items: [] as R[] }]))
  for (const item of items) entered.get(item.domainKey)?.items.push(item)
  return [...entered.values()].filter((group) => group.items.length > 0)
}

/** By key: the access fields of each item of a page. */
export async function accessOfItems(
  domains: readonly DomainAccess[],
  type: ConnectableType,
  items: readonly ConnectableRecord[],
): Promise<ReadonlyMap<number, EffectiveAccess>> {
  const found = await Promise.all(
    byDomain(domains, items).map((group) =>
      group.domain.accessOf(
        type,
        group.items.map((item) => item.key),
      ),
    ),
  )
  return new Map(found.flatMap((access) => [...access]))
}
